"""The table of all kinds. Each row says what a rank may see differently, or that it may be refused."""

from __future__ import annotations

from .of_classes import CLASSES
from .of_functions import FUNCTIONS
from .of_habits import HABITS
from .of_libraries import LIBRARIES
from .of_modules import MODULES
from .of_objects import NAMES, OBJECTS
from .of_settings import SETTINGS
from .of_trainers import TRAINERS

__all__ = ["KINDS"]

KINDS = [*FUNCTIONS, *CLASSES, *OBJECTS, *NAMES, *MODULES, *SETTINGS, *LIBRARIES, *HABITS, *TRAINERS]

"""The shared part of backends about ranks: their start on this machine, their environment, their
placement.
"""

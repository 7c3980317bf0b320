"""A real Ray over hosts in namespaces."""

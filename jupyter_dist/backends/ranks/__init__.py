"""What backends have in common: how ranks are started here, what each is given, and where it runs."""

"""Option models that several backends share."""

"""Object stores of mailboxes, for the driver."""

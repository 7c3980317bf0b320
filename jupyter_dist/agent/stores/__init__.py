"""Object stores of mailboxes, for hosts: standard library only."""

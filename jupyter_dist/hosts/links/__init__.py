"""The two kinds of link to an agent: stream and mailbox."""

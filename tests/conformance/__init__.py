"""What earlier stores promised their hosts, kept."""

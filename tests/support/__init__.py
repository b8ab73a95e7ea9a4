"""What tests share: servers, waiting, house rules."""

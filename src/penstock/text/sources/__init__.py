"""Files in many formats → blocks of documents."""

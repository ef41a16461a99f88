"""WS-Security: sign, verify, encrypt, decrypt; tokens, keys and trust. No I/O."""

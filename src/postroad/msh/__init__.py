"""What happens to a message. Pure: values in, values out, no I/O."""

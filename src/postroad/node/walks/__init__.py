"""The walks of a message: in, out, pulled, bundled, joined; each hands over to the rooms below."""

"""Code that both ends of a KernelDyno connection share: channel options, errors, validation, JSON forms, serving."""

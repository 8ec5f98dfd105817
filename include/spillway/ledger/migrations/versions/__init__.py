"""One module a schema revision, each frozen once released: it repeats its columns instead of importing the schema."""

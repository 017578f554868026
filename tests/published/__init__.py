"""The published JSON Schemas, made of the types of the documents."""

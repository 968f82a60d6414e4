"""Tokens ↔ bytes on disk: layout, manifest, writer, reader, checksums."""

"""The parts of paceline_reader, which is what to import."""

"""For projects that build on Symphony: a scripted agent without a model, and a pytest plugin."""

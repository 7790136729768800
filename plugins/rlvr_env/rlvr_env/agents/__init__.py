"""Agent programs that talk to the model over OpenAI's interface, trained by what they ask."""

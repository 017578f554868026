"""The variables in which keys of agents and of models are kept: no agent gets those of another (AG20).

The allow-list of a child's environment leaves them out; this is for login profiles, which bring them back.
"""

from collections.abc import Collection
from typing import Final

__all__ = ["KEYS", "foreign_keys"]

KEYS: Final = frozenset(
    {
        *("OPENAI_API_KEY", "CODEX_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("OPENCODE_API_KEY", "OPENROUTER_API_KEY", "CURSOR_API_KEY", "AMP_API_KEY", "FACTORY_API_KEY"),
        *("MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "GROQ_API_KEY", "XAI_API_KEY", "COHERE_API_KEY"),
        *("DASHSCOPE_API_KEY", "MOONSHOT_API_KEY", "ZAI_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY"),
        *("CEREBRAS_API_KEY", "PERPLEXITY_API_KEY", "HF_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
    }
)


def foreign_keys(own: Collection[str]) -> frozenset[str]:
    """Those that an agent whose variables are `own` never sees."""
    return KEYS - frozenset(own)

"""Mail: MIME, HTML and character sets to the text that a reader sees; X-Spam headers."""

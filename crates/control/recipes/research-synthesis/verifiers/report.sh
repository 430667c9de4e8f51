#!/bin/sh
# The report is there, has its sections, and says something in them.
#
# MO_OUTPUT_DIR is the directory with the outputs of the run. The last line printed is the answer.
set -u
report=${MO_OUTPUT_DIR:-.}/report.md

answer() {
    printf '{"pass": %s, "evidence": "%s"}\n' "$1" "$2"
    exit 0
}

# Words below the heading $1, up to the next heading of that level or above.
words_below() {
    awk -v heading="## $1" '
        { sub(/[ \t\r]+$/, "") }
        /^##? / { inside = ($0 == heading); next }
        inside { words += NF }
        END { print words + 0 }
    ' "$report"
}

if [ ! -f "$report" ] || [ -L "$report" ]; then
    answer false "report.md was not written"
fi
for section in Summary Findings Open_questions Sources; do
    section=$(printf '%s' "$section" | tr _ ' ')
    if ! grep -q "^## $section[[:space:]]*$" "$report"; then
        answer false "report.md has no section: ## $section"
    fi
    if [ "$(words_below "$section")" -eq 0 ]; then
        answer false "the section ## $section of report.md is empty"
    fi
done
if [ "$(words_below Summary)" -lt 20 ]; then
    answer false "the summary of report.md has fewer than twenty words"
fi
sources=$(awk '
    { sub(/[ \t\r]+$/, "") }
    /^##? / { inside = ($0 == "## Sources"); next }
    inside && /^[ \t]*([-*+]|[0-9]+[.)])[ \t]+[^ \t]/ { count++ }
    END { print count + 0 }
' "$report")
if [ "$sources" -eq 0 ]; then
    answer false "the section ## Sources of report.md lists no source"
fi
answer true "report.md has all four sections, findings of $(words_below Findings) words, and $sources sources"

#!/bin/sh
# Every relative link in the changed Markdown files leads to a file or directory of the repository.
#
# The working directory is the worktree; MO_CHANGED_FILES names a file with the changed paths, each
# ended by a NUL. The last line printed is the answer.
set -u
LC_ALL=C
export LC_ALL

# Text as the inside of a JSON string: no control characters, quotes and backslashes escaped.
json_text() {
    tr -d '\000-\011\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' | awk 'NR > 1 { printf "; " } { printf "%s", $0 }'
}

answer() {
    printf '{"pass": %s, "evidence": "%s"}\n' "$1" "$(printf '%s\n' "$2" | json_text)"
    exit 0
}

# One line for each relative link of the file $1: its line number, the path to look for, and the
# link as written, parted by tabs. The path is relative to the top; `..` stands for one that leads
# out of it.
links_of() {
    # By the environment: `-v` would read backslashes in the name as escapes.
    FILE=$1 awk '
        function resolve(base, target,    parts, count, i, stack, depth, result) {
            sub(/[?#].*$/, "", target)
            gsub(/%20/, " ", target)
            if (target ~ /^\//) { sub(/^\/+/, "", target); base = "" }
            count = split(base target, parts, "/")
            depth = 0
            for (i = 1; i <= count; i++) {
                if (parts[i] == "" || parts[i] == ".") continue
                if (parts[i] == "..") { if (depth == 0) return ".."; depth--; continue }
                stack[++depth] = parts[i]
            }
            result = "."
            for (i = 1; i <= depth; i++) result = result "/" stack[i]
            return result
        }
        function check(target,    base) {
            sub(/^[ \t]+/, "", target)
            if (target ~ /^</) { sub(/^</, "", target); sub(/>.*$/, "", target) }
            else sub(/[ \t].*$/, "", target)
            if (target == "" || target ~ /^#/ || target ~ /^\/\// || target ~ /^[A-Za-z][A-Za-z0-9+.-]*:/) return
            base = ENVIRON["FILE"]
            if (!sub(/[^\/]*$/, "", base)) base = ""
            gsub(/\t/, " ", target)
            print NR "\t" resolve(base, target) "\t" target
        }
        { sub(/\r$/, "") }
        /^ ? ? ?(```|~~~)/ { fenced = !fenced; next }
        fenced { next }
        {
            line = $0
            gsub(/`[^`]*`/, "", line)
            if (match(line, /^ ? ? ?\[[^\]^][^\]]*\]:[ \t]*/)) { check(substr(line, RLENGTH + 1)); next }
            while (match(line, /\]\([^()]*(\([^()]*\)[^()]*)*\)/)) {
                check(substr(line, RSTART + 2, RLENGTH - 3))
                line = substr(line, RSTART + RLENGTH)
            }
        }
    ' < "$1"
}

# Called again for one changed file: `links.sh --one FILE` prints `file`, `link` and `bad …` lines.
if [ "${1-}" = --one ]; then
    case ${2-} in
        *.md | *.markdown | *.MD) ;;
        *) exit 0 ;;
    esac
    # A deleted file has no links, and a symbolic link may lead anywhere.
    if [ ! -f "./$2" ] || [ -L "./$2" ]; then exit 0; fi
    echo file
    links_of "./$2" | while IFS='	' read -r number path link; do
        echo link
        if [ "$path" = .. ]; then
            printf 'bad %s:%s leads out of the repository: %s\n' "$2" "$number" "$link"
        elif [ ! -e "$path" ]; then
            printf 'bad %s:%s leads to nothing: %s\n' "$2" "$number" "$link"
        fi
    done
    exit 0
fi

if [ ! -r "${MO_CHANGED_FILES:-}" ]; then
    answer false "the list of changed files cannot be read"
fi
found=$(xargs -0 -n 1 sh "$0" --one < "$MO_CHANGED_FILES") || answer false "the links could not be read"
files=$(printf '%s\n' "$found" | grep -c '^file$')
links=$(printf '%s\n' "$found" | grep -c '^link$')
bad=$(printf '%s\n' "$found" | sed -n 's/^bad //p' | head -n 20)
if [ "$files" -eq 0 ]; then
    answer false "no Markdown file was changed, so nothing was checked"
elif [ -n "$bad" ]; then
    answer false "$bad"
else
    answer true "$links relative links in $files changed Markdown files lead to files of the repository"
fi

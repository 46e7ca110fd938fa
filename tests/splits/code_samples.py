"""Functions in several languages, with clones and with others that only look alike."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """A function; renamings and edits that leave a clone; edits that make another function."""

    source: str
    renames: tuple[tuple[str, str], ...]
    clones: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...]


JAVASCRIPT = """
function pickBest(items, wanted) {
  let best = null, place = -1;
  for (const [index, item] of items.entries()) {
    if (item.names.includes(wanted) && (best === null || item.score > best)) {
      best = item.score;
      place = index;
    }
  }
  try { report(`best ${best}`); } catch (failure) { log(failure, "no report"); }
  return { place, best };
}
"""
TYPESCRIPT = """
export function groupBy<T>(rows: T[], keyOf: (row: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const row of rows) {
    const key = keyOf(row).trim().toLowerCase();
    const members = groups.get(key) ?? [];
    members.push(row);
    groups.set(key, members);
  }
  return groups;
}
"""
JAVA = """
public class Ledger {
    @Override
    public int settle(final List<Entry> entries, int limit) throws LedgerException {
        int total = 0;
        for (Entry entry : entries) {
            if (entry.amount > limit || total + entry.amount > this.ceiling) {
                throw new LedgerException("too much");
            }
            total += entry.amount;
        }
        return total;
    }
}
"""
GO = """
func (s *Store) Expire(now time.Time, limit int) (removed int, err error) {
	for key, entry := range s.entries {
		if removed >= limit {
			return removed, nil
		}
		if entry.deadline.Before(now) {
			if err := s.drop(key); err != nil {
				return removed, fmt.Errorf("drop %s: %w", key, err)
			}
			removed++
		}
	}
	return removed, nil
}
"""
RUST = """
pub fn longest_run(values: &[u32], limit: usize) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut start = 0;
    for (index, value) in values.iter().enumerate() {
        if index > 0 && *value != values[index - 1] {
            start = index;
        }
        let length = index - start + 1;
        if best.map_or(true, |(_, seen)| length > seen) && length <= limit {
            best = Some((start, length));
        }
    }
    best
}
"""
C = """
static int count_words(const char *text, size_t length, int *longest)
{
    int words = 0, run = 0;
    for (size_t at = 0; at < length; at++) {
        if (isspace(text[at])) {
            if (run > *longest) { *longest = run; }
            words += run > 0;
            run = 0;
        } else {
            run++;
        }
    }
    return words + (run > 0);
}
"""
CPP = """
std::vector<int> Index::lookup(const std::string& query, std::size_t limit) const {
    std::vector<int> found;
    auto range = postings_.equal_range(query);
    for (auto it = range.first; it != range.second && found.size() < limit; ++it) {
        const auto& posting = it->second;
        if (!deleted_.count(posting.id)) {
            found.push_back(posting.id);
        }
    }
    return found;
}
"""
PYTHON2 = """
def report(rows, out):
    total = 0
    for name, row in sorted(rows.items()):
        try:
            total += int(row['amount'])
        except ValueError, problem:
            print >>out, 'bad line', name, problem
            continue
        print >>out, '%s: %d' % (name, total)
    return total
"""

SAMPLES: dict[str, Sample] = {
    "javascript": Sample(
        JAVASCRIPT,
        (("pickBest", "choose"), ("items", "rows"), ("item", "r"), ("wanted", "w"), ("index", "i"), ("failure", "e")),
        (("let best", "var best"), ('"no report"', "'no report'"), ("return {", "// done\n  return {"), (";\n", "\n")),
        ((".score", ".weight"), (">", ">="), ("report(", "alert("), ("-1", "-2"), ("no report", "none")),
    ),
    "typescript": Sample(
        TYPESCRIPT,
        (("groupBy", "partition"), ("rows", "all"), ("row", "one"), ("members", "list"), ("groups", "found")),
        (
            (": Map<string, T[]> {", " {"),
            ("export ", ""),
            ("const key", "let key"),
            ("rows: T[]", "rows: readonly T[]"),
        ),
        ((".trim()", ".trimEnd()"), ("??", "||"), ("push", "unshift")),
    ),
    "java": Sample(
        JAVA,
        (("settle", "sum"), ("entries", "list"), ("entry", "e"), ("limit", "cap"), ("total", "acc")),
        (("@Override\n", ""), ("public int", "private int"), ("final ", ""), ("return", "/* done */ return")),
        ((".amount", ".value"), ("||", "&&"), ("LedgerException(", "StateException("), ("too much", "too little")),
    ),
    "go": Sample(
        GO,
        (("Expire", "Purge"), ("removed", "n"), ("entry", "e"), ("key", "k"), ("limit", "most"), ("now", "at")),
        (("func", "// Expire drops.\nfunc"), ("\t", "    ")),
        (("Before", "After"), ("s.drop", "s.remove"), (">=", ">"), ("%w", "%v")),
    ),
    "rust": Sample(
        RUST,
        (("longest_run", "streak"), ("values", "xs"), ("value", "x"), ("best", "top"), ("length", "n"), ("seen", "m")),
        (("pub fn", "#[inline]\nfn"), ("    best\n", "    // done\n    best\n")),
        (("enumerate", "rev"), ("<=", "<"), ("map_or", "is_some_and"), ("+ 1", "+ 2")),
    ),
    "c": Sample(
        C,
        (("count_words", "tally"), ("text", "s"), ("words", "n"), ("run", "len"), ("longest", "max"), ("at", "i")),
        (("\n{", " {"), ("int words", "/* count */ int words")),
        (("isspace", "isdigit"), ("size_t at", "int at"), ("> 0", "> 1"), ("run++", "run--")),
    ),
    "cpp": Sample(
        CPP,
        (
            ("lookup", "find"),
            ("query", "q"),
            ("found", "out"),
            ("posting", "p"),
            ("it", "i"),
            ("range", "r"),
        ),
        (("    auto range", "    // both ends\n    auto range"),),
        (("deleted_", "hidden_"), ("!=", "=="), ("push_back", "insert"), ("equal_range", "find_all")),
    ),
    "python2": Sample(
        PYTHON2,
        (("report", "show"), ("rows", "xs"), ("row", "x"), ("total", "acc"), ("problem", "e"), ("name", "k")),
        (("    total = 0", '    "Print all."\n    total = 0  # none yet'), ("'bad line'", '"bad line"')),
        (("int(", "float("), ("'amount'", "'value'"), ("sorted", "reversed"), ("ValueError", "KeyError")),
    ),
}
"""Renames are whole words; every clone edit and every other edit stands alone."""

//! "Did you mean ...?"

/// The candidate within a third of edits of `word`, if any.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|c| (edits(word, c), c))
        .filter(|(d, c)| *d * 3 <= c.len().max(3) + 1)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Letters to be put in, taken out, changed or swapped with their neighbour to make `b` of `a`.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[i - 2][j - 2] + 1);
            }
            row.push(cost);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let cases = [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("web", "wbe", 1), ("info", "inof", 1)];
        for (a, b, n) in cases.into_iter().chain([("kitten", "sitting", 3), ("abcd", "badc", 2)]) {
            assert_eq!(edits(a, b), n, "{a} {b}");
        }
    }
}

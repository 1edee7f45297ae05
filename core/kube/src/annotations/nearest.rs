//! The nearest known word to a misspelt one.

/// The longest word that is compared, in characters; of longer ones, the beginning is.
const MAX_CHARS: usize = 64;

/// The nearest of the known words, if one is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(MAX_CHARS).map(|c| c.to_ascii_lowercase()).collect();
    let far = (word.len() / 3).max(1);
    let all = known.into_iter().map(|one| (distance(&word, one), one));
    all.filter(|(distance, _)| *distance <= far).min_by_key(|(distance, _)| *distance).map(|(_, one)| one)
}

/// How many characters are to be put in, left out, changed or swapped with their neighbour.
fn distance(word: &[char], known: &str) -> usize {
    let known: Vec<char> = known.chars().take(MAX_CHARS).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=known.len()).collect();
    for (row, of_word) in word.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, of_known) in known.iter().enumerate() {
            let changed = last[column] + usize::from(of_word != of_known);
            let mut least = changed.min(last[column + 1] + 1).min(next[column] + 1);
            let is_swap = row > 0 && column > 0 && word[row - 1] == *of_known && *of_word == known[column - 1];
            if is_swap {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[known.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_has_a_neighbour_and_a_strange_one_has_none() {
        let known = ["type", "domain", "allowed-email-domains", "policy"];
        for (word, expected) in [
            ("tpye", Some("type")),
            ("Domain", Some("domain")),
            ("domains", Some("domain")),
            ("allowed-emails-domain", Some("allowed-email-domains")),
            ("polcy", Some("policy")),
            ("replicas", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(300), known), None);
    }
}

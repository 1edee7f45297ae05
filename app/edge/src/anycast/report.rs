//! What the edge tells about its announcements.

use sallyport_anycast::bird::{Protocol, Route, peer_of};
use sallyport_api::{AnycastEdgePeer, AnycastRoute};

/// The longest text of BIRD that is shown, in characters.
const MAX_TEXT_CHARS: usize = 300;
/// The most lines of a difference.
const MAX_DIFF_LINES: usize = 2_000;

/// A text of another program, in one line.
pub(super) fn short(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MAX_TEXT_CHARS).collect()
}

/// The sessions with neighbours.
pub(super) fn peers(protocols: &[Protocol]) -> Vec<AnycastEdgePeer> {
    let sessions = protocols.iter().filter_map(|one| Some((peer_of(&one.name)?, one)));
    let shown = sessions.filter(|(_, one)| one.kind == "BGP").map(|(name, one)| {
        let state = match (&one.last_error, one.info.as_str()) {
            (Some(error), info) if !one.is_established() => format!("{info} ({error})"),
            (_, "") => one.state.clone(),
            (_, info) => info.to_owned(),
        };
        AnycastEdgePeer { name, is_up: one.is_established(), state: short(&state) }
    });
    shown.collect()
}

/// The routes that neighbours have sent.
pub(super) fn routes(found: Vec<Route>) -> Vec<AnycastRoute> {
    let shown = found.into_iter().filter_map(|route| {
        Some(AnycastRoute {
            edge: String::new(),
            region: None,
            peer: peer_of(&route.protocol)?,
            prefix: route.net.to_string(),
            path: route.as_path,
            communities: route.communities.iter().map(ToString::to_string).collect(),
        })
    });
    shown.collect()
}

/// The text without passwords.
pub(super) fn masked(text: &str) -> String {
    let mask = |line: &str| match line.split_once("password \"") {
        Some((head, _)) => format!("{head}password \"...\";"),
        None => line.to_owned(),
    };
    text.lines().map(|line| mask(line) + "\n").collect()
}

/// The lines that go and come. What is the same before and after them is left out.
pub(super) fn diff(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same_first = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (before, after) = (&before[same_first..], &after[same_first..]);
    let same_last = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let gone = before[..before.len() - same_last].iter().map(|line| format!("-{line}\n"));
    let come = after[..after.len() - same_last].iter().map(|line| format!("+{line}\n"));
    gone.chain(come).take(MAX_DIFF_LINES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_the_lines_between_what_is_the_same() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\ny\nc\n"), "-b\n+x\n+y\n");
        assert_eq!(diff("a\n", "a\n"), "");
        assert_eq!(diff("", "a\n"), "+a\n");
        assert_eq!(diff("a\na\n", "a\n"), "-a\n");
    }

    #[test]
    fn a_password_is_not_shown() {
        let text = "  password \"hunter2\";\n  hold time 9;\n";
        assert_eq!(masked(text), "  password \"...\";\n  hold time 9;\n");
    }
}

//! User codes of logins without a browser (RFC 8628). Pure: random numbers are arguments.

/// Letters that are hard to confuse and form no words (RFC 8628 section 6.1).
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// How many letters a code has: 34 bits.
const CODE_LETTERS: usize = 8;

/// A code of random bytes. Bytes that would make some letters likelier are skipped.
pub(super) fn user_code(random: &[u8]) -> Option<String> {
    let letters = random.iter().filter(|byte| **byte < 240).map(|byte| char::from(LETTERS[usize::from(byte % 20)]));
    let code: String = letters.take(CODE_LETTERS).collect();
    (code.len() == CODE_LETTERS).then_some(code)
}

/// The code as people see it.
pub(super) fn format_user_code(code: &str) -> String {
    match code.split_at_checked(CODE_LETTERS / 2) {
        Some((first, second)) => format!("{first}-{second}"),
        None => code.to_owned(),
    }
}

/// Parses a typed code, in any case and with any separators.
pub(super) fn parse_user_code(text: &str) -> Option<String> {
    let code: String = text
        .chars()
        .filter(|c| !matches!(c, '-' | ' '))
        .take(CODE_LETTERS + 1)
        .map(|c| c.to_ascii_uppercase())
        .collect();
    (code.len() == CODE_LETTERS && code.bytes().all(|byte| LETTERS.contains(&byte))).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_typed_as_people_type() {
        let code = user_code(&[0, 1, 255, 2, 3, 240, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(code, "BCDFGHJK");
        assert_eq!(user_code(&[255; 64]), None);
        assert_eq!(format_user_code(&code), "BCDF-GHJK");
        for text in ["BCDF-GHJK", "bcdfghjk", " bcdf ghjk "] {
            assert_eq!(parse_user_code(text).as_deref(), Some("BCDFGHJK"), "{text}");
        }
        for text in ["", "BCDFGHJ", "BCDFGHJKL", "BCDFGHJA", "BCDFGHJ\u{e9}"] {
            assert_eq!(parse_user_code(text), None, "{text}");
        }
    }
}

//! Accepts flags with underscores (`--socket_id`), as in the first client of this kind.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

/// Turns `--socket_id` and `--socket_id=value` into `--socket-id` and `--socket-id=value`.
///
/// Values are left alone, and so is everything after `--`.
pub(crate) fn fold_underscores(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut only_values = false;
    args.into_iter()
        .map(|arg| {
            only_values |= arg == "--";
            if only_values { arg } else { fold(&arg).unwrap_or(arg) }
        })
        .collect()
}

/// The argument with hyphens, if it is a flag with underscores.
fn fold(arg: &OsStr) -> Option<OsString> {
    let bytes = arg.as_bytes();
    if !bytes.starts_with(b"--") {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    let (flag, value) = bytes.split_at(end);
    let is_flag = flag.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if !is_flag || !flag.contains(&b'_') {
        return None;
    }
    let mut folded: Vec<u8> = flag.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
    folded.extend_from_slice(value);
    Some(OsString::from_vec(folded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(args: &[&str]) -> Vec<String> {
        fold_underscores(args.iter().map(OsString::from))
            .into_iter()
            .map(|arg| arg.into_string().expect("the tests use UTF-8"))
            .collect()
    }

    #[test]
    fn flags_are_folded_and_values_are_not() {
        assert_eq!(
            folded(&["sallyport", "tunnel", "connect", "--socket_id", "a_b", "--tunnel_id=c_d", "-o", "json"]),
            ["sallyport", "tunnel", "connect", "--socket-id", "a_b", "--tunnel-id=c_d", "-o", "json"]
        );
        assert_eq!(folded(&["--name=--my_name", "my_name", "_", "-_"]), ["--name=--my_name", "my_name", "_", "-_"]);
    }

    #[test]
    fn nothing_is_touched_after_two_hyphens() {
        assert_eq!(folded(&["--a_b", "--", "--c_d"]), ["--a-b", "--", "--c_d"]);
    }

    #[test]
    fn what_is_no_flag_or_no_text_passes_through() {
        assert_eq!(folded(&["--a b_c", "--ä_ö"]), ["--a b_c", "--ä_ö"]);
        let raw = OsString::from_vec(b"--ca_file=\xff_\xfe".to_vec());
        assert_eq!(fold_underscores([raw]), [OsString::from_vec(b"--ca-file=\xff_\xfe".to_vec())]);
    }
}

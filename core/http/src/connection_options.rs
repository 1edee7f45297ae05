//! Lists of options in `Connection` and `TE` (RFC 9110 section 7.6.1).

/// Whether this list has the option, in any case.
pub(crate) fn has_option(value: &[u8], option: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(option))
}

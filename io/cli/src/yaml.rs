//! YAML that every reader understands alike: words that YAML 1.1 takes for something else (`no`, `12:30:45`, `1_000`,
//! `<<`) are quoted, whatever YAML 1.2 thinks of them.

use serde_norway::Value;

/// The words that are no strings, in small letters.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// The value as YAML, without an end of line.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out.trim_end().to_owned()
}

/// A value that begins at the present place; its further lines are indented by `depth`.
fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Sequence(items) if !items.is_empty() => {
            for (n, item) in items.iter().enumerate() {
                indent(n, depth, out);
                out.push_str("- ");
                block(item, depth + 2, out);
            }
        }
        Value::Mapping(fields) if !fields.is_empty() => {
            for (n, (name, value)) in fields.iter().enumerate() {
                indent(n, depth, out);
                out.push_str(&scalar(name));
                out.push(':');
                match value {
                    Value::Sequence(items) if !items.is_empty() => {
                        out.push('\n');
                        indent(1, depth, out);
                        block(value, depth, out);
                    }
                    Value::Mapping(fields) if !fields.is_empty() => {
                        out.push('\n');
                        indent(1, depth + 2, out);
                        block(value, depth + 2, out);
                    }
                    _ => {
                        out.push(' ');
                        block(value, depth, out);
                    }
                }
            }
        }
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
}

/// All lines but the first of a block, whose place is there already.
fn indent(line: usize, depth: usize, out: &mut String) {
    if line > 0 {
        out.extend(std::iter::repeat_n(' ', depth));
    }
}

/// A value in one line.
fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quoted(text),
        Value::Sequence(_) => "[]".to_owned(),
        Value::Mapping(_) => "{}".to_owned(),
        Value::Tagged(tagged) => scalar(&tagged.value),
    }
}

/// Whether every reader takes the bare text for a string: it begins as no number, sign or date does.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -_./@:+=%".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// The text in double quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &serde_json::Value) -> String {
        text(&serde_norway::to_value(value).unwrap())
    }

    #[test]
    fn words_that_old_readers_take_for_something_else_are_quoted() {
        let words = [
            "no",
            "Off",
            "y",
            "TRUE",
            "null",
            "~",
            "",
            "12:30:45",
            "1_000",
            "0x1f",
            "1e3",
            "-1",
            "+1",
            ".inf",
            "2026-01-01",
            "<<",
            "=",
            "a: b",
            "a:",
            " a",
            "a ",
            "- a",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "a\nb",
            "a\"b\\",
            "'a'",
            "ü",
            "\u{1b}",
        ];
        for word in words {
            let written = of(&json!(word));
            assert!(written.starts_with('"') && written.ends_with('"'), "{word:?} is written {written}");
            let read: String = serde_norway::from_str(&written).unwrap();
            assert_eq!(read, word, "{written}");
        }
        for word in ["http", "my test service", "wandering-shape-7752.localhost", "https://a.localhost:8443/x", "/a"] {
            assert_eq!(of(&json!(word)), word);
        }
    }

    #[test]
    fn lists_and_fields_are_read_as_they_were() {
        let value = json!([
            {"id": "a1", "up": true, "none": null, "of": {"n": 1, "list": ["x", "no", [1, 2]], "empty": [], "void": {}}},
            {"id": "2", "weight": 0.5, "list": [{"a": 1, "b": [{"c": "d"}]}]},
            [], {}, [["deep"]],
        ]);
        let written = of(&value);
        let read: serde_json::Value = serde_norway::from_str(&written).unwrap_or_else(|e| panic!("{e}:\n{written}"));
        assert_eq!(read, value, "{written}");
        assert_eq!(of(&json!({"items": [{"id": "a", "up": 1}]})), "items:\n- id: a\n  up: 1");
        assert_eq!(of(&json!([])), "[]");
    }
}

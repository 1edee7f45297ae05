//! Ports on the command line.

/// Parses a port.
///
/// # Errors
/// A sentence with what was expected.
pub(crate) fn parse(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "expected a port from 1 to 65535".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::*;
    use crate::cli::Cli;

    /// The errors of all options that are a port, each with the command that has it.
    fn collect(command: &Command, words: &str, text: &str, says: &mut Vec<(String, String)>) {
        let is_port = |option: &&clap::Arg| {
            option.get_value_names().is_some_and(|names| names.len() == 1 && names[0].as_str() == "PORT")
        };
        for option in command.get_arguments().filter(is_port) {
            let option = option.clone().id("it").required(false).long("it").short(None);
            let alone = Command::new("x").arg(option);
            let error = alone.try_get_matches_from(["x", "--it", text]).err().map(|error| error.to_string());
            says.push((words.to_owned(), error.unwrap_or_default()));
        }
        for inner in command.get_subcommands() {
            collect(inner, &format!("{words} {}", inner.get_name()), text, says);
        }
    }

    #[test]
    fn a_port_is_a_number_that_there_is() {
        assert_eq!((parse("1"), parse("65535")), (Ok(1), Ok(65_535)));
        for bad in ["", "0", "65536", "-1", "abc", "80 ", "http", "1.5"] {
            assert_eq!(parse(bad).unwrap_err(), "expected a port from 1 to 65535", "{bad}");
        }
    }

    #[test]
    fn every_port_option_has_the_same_error() {
        for bad in ["abc", "0", "65536", "-1"] {
            let mut says = Vec::new();
            collect(&Cli::command(), "sallyport", bad, &mut says);
            assert!(says.len() >= 10, "{says:?}");
            for (words, error) in says {
                assert!(error.contains("expected a port from 1 to 65535"), "{words}: {error}");
            }
        }
    }
}

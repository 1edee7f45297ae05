//! Finds one item of a list by id, by name, or by the beginning of its id.

use sallyport_model::ShortId;
use uuid::Uuid;

use crate::failure::{Failure, Kind};

/// How to find an item.
pub(crate) struct Pick<'a, T> {
    /// The kind of item, such as `API token`.
    pub(crate) what: &'static str,
    /// The command that lists them.
    pub(crate) list: &'static str,
    /// The id of an item.
    pub(crate) id: &'a dyn Fn(&T) -> Uuid,
    /// The names of an item.
    pub(crate) names: &'a dyn Fn(&T) -> Vec<String>,
}

impl<T> Pick<'_, T> {
    /// The item with this id or name.
    ///
    /// # Errors
    /// No item matches, or several do.
    pub(crate) fn find(&self, all: Vec<T>, text: &str) -> Result<T, Failure> {
        let text = text.trim();
        let (id, start) = (text.parse::<Uuid>().ok(), text.parse::<ShortId>().ok());
        let is_called = |one: &T| (self.names)(one).iter().any(|name| name.to_lowercase() == text.to_lowercase());
        let by_id = all.iter().position(|one| Some((self.id)(one)) == id);
        let named = || all.iter().enumerate().filter(|(_, one)| is_called(one)).map(|(at, _)| at).collect::<Vec<_>>();
        let short = |start: ShortId| {
            all.iter().enumerate().filter(|(_, one)| start.begins((self.id)(one))).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let mut found = match by_id {
            Some(at) => vec![at],
            None => named(),
        };
        if let (true, Some(start)) = (found.is_empty(), start) {
            found = short(start);
        }
        let Self { what, list, .. } = self;
        match found[..] {
            [at] => all.into_iter().nth(at).ok_or_else(|| self.missing(text)),
            [] => Err(self.missing(text)),
            _ => Err(Failure::new(
                Kind::Refused,
                format!("several have this name or beginning of an id: {what} {text:?}"),
            )
            .next(format!("give the whole id, as `{list} -o wide` shows it"))),
        }
    }

    fn missing(&self, text: &str) -> Failure {
        let Self { what, list, .. } = self;
        Failure::new(Kind::NotFound, format!("there is no such {what}: {text}")).next(format!("see `{list}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_a_name_and_the_beginning_of_an_id_all_mean_the_one() {
        let ids = ["0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11", "0b7e3c1b-5f0e-4c57-9f63-6a1f0f9e2d11"];
        let all = || vec![(ids[0].parse::<Uuid>().unwrap(), "CI"), (ids[1].parse().unwrap(), "deploy")];
        let names = |one: &(Uuid, &str)| vec![one.1.to_owned()];
        let pick =
            Pick { what: "API token", list: "sallyport token ls", id: &|one: &(Uuid, &str)| one.0, names: &names };
        for text in [ids[0], "ci", "0b7e3c1a"] {
            assert_eq!(pick.find(all(), text).unwrap().1, "CI", "{text}");
        }
        let several = pick.find(all(), "0b7e3c1").unwrap_err();
        assert!(several.kind == Kind::Refused && several.next_step.unwrap().contains("sallyport token ls -o wide"));
        for missing in ["", "0b7e3", "nothing", "0b7e3c1c"] {
            assert_eq!(pick.find(all(), missing).unwrap_err().kind, Kind::NotFound, "{missing}");
        }
    }
}

//! Reads JSON as strictly as the API's description: only objects as structs, and only strings as enums.
//!
//! serde also accepts an array for the fields of a struct, and `{"word": null}` for a unit variant. It also reports a
//! number in place of a string as a syntax error.

use std::{cell::RefCell, fmt, vec};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, Value};

/// A JSON value. Unlike [`Value`] it keeps repeated fields, so that they can be refused.
#[derive(Debug)]
pub(crate) enum Strict {
    Scalar(Value),
    Array(Vec<Strict>),
    Object(Vec<(String, Strict)>),
}

impl Strict {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Array(_) => Unexpected::Seq,
            Self::Object(_) => Unexpected::Map,
            Self::Scalar(Value::String(text)) => Unexpected::Str(text),
            Self::Scalar(Value::Bool(value)) => Unexpected::Bool(*value),
            Self::Scalar(Value::Number(number)) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => Unexpected::Unsigned(number),
                (_, Some(number), _) => Unexpected::Signed(number),
                (_, _, number) => Unexpected::Float(number.unwrap_or_default()),
            },
            Self::Scalar(_) => Unexpected::Other("null"),
        }
    }

    fn refuse<T>(&self, expected: &'static str) -> Result<T, Error> {
        Err(Error::invalid_type(self.unexpected(), &expected))
    }
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Strict;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Strict, E> {
                Ok(Strict::Scalar(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
                Ok(Strict::Scalar(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
                Ok(Strict::Scalar(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
                Ok(Strict::Scalar(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
                Ok(Strict::Scalar(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
                Ok(Strict::Scalar(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Strict::Array(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Strict::Object(fields))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// What is wrong, and where: `protected.username`, or nothing for the whole value.
#[derive(Debug)]
pub(crate) struct ReadError {
    pub(crate) path: String,
    pub(crate) error: Error,
}

impl Strict {
    /// Reads a type.
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T, ReadError> {
        let path = RefCell::default();
        T::deserialize(ValueReader { value: self, path: &path }).map_err(|error| ReadError { path: path.take(), error })
    }
}

/// A value with its path. After an error the path names the place of the error.
struct ValueReader<'p> {
    value: Strict,
    path: &'p RefCell<String>,
}

/// Makes the path longer by a field. Returns its length before.
fn enter_field(path: &RefCell<String>, name: &str) -> usize {
    let mut path = path.borrow_mut();
    let len = path.len();
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
    len
}

/// Makes the path longer by an item. Returns its length before.
fn enter_item(path: &RefCell<String>, index: usize) -> usize {
    let mut path = path.borrow_mut();
    let len = path.len();
    path.push_str(&format!("[{index}]"));
    len
}

/// Sets the path back to this length. Not called after an error, whose place the path names.
fn leave(path: &RefCell<String>, len: usize) {
    path.borrow_mut().truncate(len);
}

struct Fields<'p> {
    rest: vec::IntoIter<(String, Strict)>,
    /// The field whose name was read.
    named: Option<(String, Strict)>,
    path: &'p RefCell<String>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        let len = enter_field(self.path, &name);
        let key = seed.deserialize(name.as_str().into_deserializer())?;
        leave(self.path, len);
        self.named = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.named.take().ok_or_else(|| Error::custom("a field without a name"))?;
        let len = enter_field(self.path, &name);
        let value = seed.deserialize(ValueReader { value, path: self.path })?;
        leave(self.path, len);
        Ok(value)
    }
}

struct Items<'p> {
    rest: std::iter::Enumerate<vec::IntoIter<Strict>>,
    path: &'p RefCell<String>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.rest.next() else { return Ok(None) };
        let len = enter_item(self.path, index);
        let item = seed.deserialize(ValueReader { value, path: self.path })?;
        leave(self.path, len);
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

impl<'de> Deserializer<'de> for ValueReader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let path = self.path;
        match self.value {
            Strict::Scalar(value) => value.deserialize_any(visitor),
            Strict::Array(items) => visitor.visit_seq(Items { rest: items.into_iter().enumerate(), path }),
            Strict::Object(fields) => visitor.visit_map(Fields { rest: fields.into_iter(), named: None, path }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Strict::Scalar(Value::Null) => visitor.visit_none(),
            value => visitor.visit_some(Self { value, ..self }),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Strict::Object(_) => self.deserialize_any(visitor),
            other => other.refuse("an object"),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Strict::Scalar(Value::String(word)) => visitor.visit_enum(word.into_deserializer()),
            other => other.refuse("a string"),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        #[serde(default)]
        items: Vec<BTreeMap<String, u8>>,
        #[serde(default)]
        inner: Option<Box<Whole>>,
    }

    #[test]
    fn what_is_wrong_is_found_wherever_it_is() {
        let cases = [
            (r#"{"items":[{"a":1},{"a":1,"b":300}]}"#, "items[1].b"),
            (r#"{"items":[{},7]}"#, "items[1]"),
            (r#"{"items":7}"#, "items"),
            (r#"{"inner":{"inner":{"items":[{"x":null}]}}}"#, "inner.inner.items[0].x"),
            (r#"{"inner":{"items":[],"itmes":[]}}"#, "inner.itmes"),
            (r#"{"inner":{"items":[],"items":[]}}"#, "inner"),
            (r#"[]"#, ""),
        ];
        for (json, path) in cases {
            let refused = serde_json::from_str::<Strict>(json).unwrap().read::<Whole>().unwrap_err();
            assert_eq!(refused.path, path, "{json}: {}", refused.error);
        }
        let json = r#"{"inner":{"items":[{"a":1},{"b":2}]},"items":[]}"#;
        let whole: Whole = serde_json::from_str::<Strict>(json).unwrap().read().unwrap();
        assert_eq!(whole.inner.unwrap().items[1]["b"], 2);
        assert!(whole.items.is_empty());
    }
}

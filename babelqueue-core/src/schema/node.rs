use std::collections::HashMap;

use super::SchemaError;
use super::check::Path;
use super::document::{self, items, members, string};
use super::number::Decimal;
use crate::envelope::Kind;

/// How deep schemas may stand in one another, and the values of a `const` or an `enum`: what bounds
/// the recursion of reading and checking.
const DEPTH: usize = 128;

/// One schema of the subset; the values of `const`, `enum` and `minimum` as they are written.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) constant: Option<Box<str>>,
    pub(super) choices: Option<Vec<Box<str>>>,
    pub(super) kind: Option<Type>,
    pub(super) required: Vec<String>,
    pub(super) properties: HashMap<String, Self>,
    /// `additionalProperties` is `false`.
    pub(super) closed: bool,
    pub(super) items: Option<Box<Self>>,
    pub(super) min_length: u64,
    pub(super) minimum: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

impl Node {
    /// Reads one schema of well-formed text.
    pub(super) fn parse(text: &str, path: &Path<'_>, depth: usize) -> Result<Self, SchemaError> {
        if depth > DEPTH {
            return Err(SchemaError::new(path, "is nested too deep"));
        }
        if text == "true" && depth > 0 {
            return Ok(Self::default());
        }
        if !text.starts_with('{') {
            return Err(SchemaError::new(path, expected(text, "an object")));
        }
        let mut node = Self::default();
        for (keyword, value) in members(text) {
            node.set(&keyword, value, path, depth)?;
        }
        Ok(node)
    }

    fn set(
        &mut self,
        keyword: &str,
        value: &str,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), SchemaError> {
        let wrong = |wanted: &str| {
            let problem = format!("has a `{keyword}` that {}", expected(value, wanted));
            SchemaError::new(path, problem)
        };
        match keyword {
            // They are compared by recursion.
            "const" | "enum" if document::depth(value) > DEPTH => {
                let problem = format!("has a `{keyword}` that is nested too deep");
                return Err(SchemaError::new(path, problem));
            }
            "const" => self.constant = Some(value.into()),
            "enum" if value.starts_with('[') => {
                self.choices = Some(items(value).map(Into::into).collect());
            }
            "enum" => return Err(wrong("an array")),
            // Lists of types and of schemas are not of the subset.
            "type" | "items" if value.starts_with('[') => {}
            "type" => {
                let name = string(value).ok_or_else(|| wrong("a string"))?;
                self.kind = Some(Type::named(&name).ok_or_else(|| wrong("a type's name"))?);
            }
            "required" if value.starts_with('[') => {
                let names: Option<_> = items(value).map(string).collect();
                let names: Vec<_> = names.ok_or_else(|| wrong("an array of strings"))?;
                self.required = names.into_iter().map(Into::into).collect();
            }
            "required" => return Err(wrong("an array of strings")),
            "properties" if value.starts_with('{') => {
                for (name, schema) in members(value) {
                    let node = Self::parse(schema, &Path::Member(path, &name), depth + 1)?;
                    self.properties.insert(name.into_owned(), node);
                }
            }
            "properties" => return Err(wrong("an object")),
            "additionalProperties" => self.closed = value == "false",
            "items" => {
                let node = Self::parse(value, &Path::Items(path), depth + 1)?;
                self.items = Some(Box::new(node));
            }
            "minLength" => {
                let length = Decimal::read(value).and_then(Decimal::to_u64);
                self.min_length = length.ok_or_else(|| wrong("a whole number from 0 up"))?;
            }
            "minimum" if Decimal::read(value).is_some() => self.minimum = Some(value.into()),
            "minimum" => return Err(wrong("a number")),
            _ => {}
        }
        Ok(())
    }
}

impl Type {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "null" => Self::Null,
            _ => return None,
        })
    }
}

fn expected(value: &str, wanted: &str) -> String {
    match Kind::of(value.as_bytes()) {
        Some(found) => format!("is {found}, expected {wanted}"),
        None => format!("is nothing, expected {wanted}"),
    }
}

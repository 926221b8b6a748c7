use std::fmt;

use super::document::{items, members, string};
use super::equal::equal;
use super::node::{Node, Type};
use super::number::Decimal;
use super::{Code, Violation};

/// A place in a payload or a schema; the root is shown as `<root>`.
#[derive(Debug)]
pub(super) enum Path<'a> {
    Root,
    Member(&'a Self, &'a str),
    Item(&'a Self, usize),
    /// Every item of an array: a place in a schema.
    Items(&'a Self),
}

impl Node {
    /// The first violation of well-formed `value`. It goes no deeper than the schema.
    pub(super) fn check(&self, value: &str, path: &Path<'_>) -> Result<(), Violation> {
        let require = |holds: bool, code: Code| {
            if holds {
                Ok(())
            } else {
                Err(Violation::at(path, code))
            }
        };
        if let Some(constant) = &self.constant {
            require(equal(value, constant), Code::WrongConst)?;
        }
        if let Some(choices) = &self.choices {
            let listed = choices.iter().any(|choice| equal(value, choice));
            require(listed, Code::NotInEnum)?;
        }
        match self.kind {
            None => Ok(()),
            Some(Type::Object) => {
                require(value.starts_with('{'), Code::NotAnObject)?;
                self.check_members(value, path)
            }
            Some(Type::Array) => {
                require(value.starts_with('['), Code::NotAnArray)?;
                self.check_items(value, path)
            }
            Some(Type::String) => {
                let text = string(value);
                require(text.is_some(), Code::NotAString)?;
                let length = text.map_or(0, |text| text.chars().count());
                let long_enough = u64::try_from(length).is_ok_and(|n| n >= self.min_length);
                require(long_enough, Code::BelowMinLength)
            }
            Some(Type::Integer) => {
                let whole = Decimal::read(value).is_some_and(|number| number.is_integer());
                require(whole, Code::NotAnInteger)?;
                require(self.reaches_minimum(value), Code::BelowMinimum)
            }
            Some(Type::Number) => {
                require(Decimal::read(value).is_some(), Code::NotANumber)?;
                require(self.reaches_minimum(value), Code::BelowMinimum)
            }
            Some(Type::Boolean) => require(matches!(value, "true" | "false"), Code::NotABoolean),
            Some(Type::Null) => require(value == "null", Code::NotNull),
        }
    }

    fn check_members(&self, object: &str, path: &Path<'_>) -> Result<(), Violation> {
        let members = members(object);
        for name in &self.required {
            if !members.iter().any(|(member, _)| member == name) {
                let path = Path::Member(path, name);
                return Err(Violation::at(&path, Code::MissingRequired));
            }
        }
        for (name, value) in &members {
            let path = Path::Member(path, name);
            match self.properties.get(&**name) {
                Some(schema) => schema.check(value, &path)?,
                None if self.closed => {
                    return Err(Violation::at(&path, Code::AdditionalNotAllowed));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_items(&self, array: &str, path: &Path<'_>) -> Result<(), Violation> {
        let Some(schema) = &self.items else {
            return Ok(());
        };
        for (index, value) in items(array).enumerate() {
            schema.check(value, &Path::Item(path, index))?;
        }
        Ok(())
    }

    fn reaches_minimum(&self, value: &str) -> bool {
        let minimum = self.minimum.as_deref().and_then(Decimal::read);
        match (Decimal::read(value), minimum) {
            (Some(value), Some(minimum)) => value >= minimum,
            _ => true,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("<root>"),
            Self::Member(Path::Root, name) => f.write_str(name),
            Self::Member(parent, name) => write!(f, "{parent}.{name}"),
            // An item of the root stands without a name before it: `[2].sku`.
            Self::Item(Path::Root, index) => write!(f, "[{index}]"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Items(Path::Root) => f.write_str("[]"),
            Self::Items(parent) => write!(f, "{parent}[]"),
        }
    }
}

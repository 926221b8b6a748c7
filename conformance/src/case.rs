use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::Unreadable;
use crate::json::{self, Json};

/// One case of the suite.
#[derive(Debug, Clone)]
pub struct Case {
    /// The section that it belongs to.
    pub section: Arc<str>,
    /// Its id within the section (contract §17B.2).
    pub id: String,
    /// Its own members: the input and what is expected.
    pub fields: Json,
    /// What stands beside it in the section or sub-key that holds it: a `schema`, an
    /// `original_queue`, the `incoming_bodies`.
    pub block: Arc<Json>,
    pub(crate) folder: Arc<Path>,
}

impl Case {
    /// The sub-key that holds it, where one does: `reserve` of `redis_layout`'s `reserve/…`.
    pub fn group(&self) -> Option<&str> {
        let (group, _) = self.id.split_once('/')?;
        Some(group)
    }

    /// A member that need not be there.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.fields.get(name)
    }

    /// A member that has to be there.
    ///
    /// # Errors
    ///
    /// It is not there.
    pub fn need(&self, name: &str) -> Result<&Json, Unreadable> {
        self.get(name).ok_or_else(|| self.lacks(name, "a member"))
    }

    /// A string member.
    ///
    /// # Errors
    ///
    /// It is not there, or is no string.
    pub fn text(&self, name: &str) -> Result<&str, Unreadable> {
        self.get(name)
            .and_then(Json::as_str)
            .ok_or_else(|| self.lacks(name, "a string"))
    }

    /// An integer member.
    ///
    /// # Errors
    ///
    /// It is not there, or is no integer of 64 bits.
    pub fn integer(&self, name: &str) -> Result<i64, Unreadable> {
        self.get(name)
            .and_then(Json::as_i64)
            .ok_or_else(|| self.lacks(name, "an integer"))
    }

    /// A number member, as a double.
    ///
    /// # Errors
    ///
    /// It is not there, or is no number.
    pub fn number(&self, name: &str) -> Result<f64, Unreadable> {
        self.get(name)
            .and_then(Json::as_f64)
            .ok_or_else(|| self.lacks(name, "a number"))
    }

    /// A boolean member.
    ///
    /// # Errors
    ///
    /// It is not there, or is no boolean.
    pub fn flag(&self, name: &str) -> Result<bool, Unreadable> {
        self.get(name)
            .and_then(Json::as_bool)
            .ok_or_else(|| self.lacks(name, "a boolean"))
    }

    /// An array member's items.
    ///
    /// # Errors
    ///
    /// It is not there, or is no array.
    pub fn items(&self, name: &str) -> Result<&[Json], Unreadable> {
        self.get(name)
            .and_then(Json::as_array)
            .ok_or_else(|| self.lacks(name, "an array"))
    }

    /// An object member's members, in order.
    ///
    /// # Errors
    ///
    /// It is not there, or is no object.
    pub fn members(&self, name: &str) -> Result<&[(String, Json)], Unreadable> {
        self.get(name)
            .and_then(Json::as_object)
            .ok_or_else(|| self.lacks(name, "an object"))
    }

    /// A string that stands beside the case, for all of its block.
    ///
    /// # Errors
    ///
    /// It is not there, or is no string.
    pub fn block_text(&self, name: &str) -> Result<&str, Unreadable> {
        self.block
            .get(name)
            .and_then(Json::as_str)
            .ok_or_else(|| self.lacks(name, "a string beside the case"))
    }

    /// The exact bytes of the fixture that the member `name` points at, the case's own or the one
    /// that stands beside it.
    ///
    /// # Errors
    ///
    /// The member is not there, or the file can't be read.
    pub fn fixture(&self, name: &str) -> Result<Vec<u8>, Unreadable> {
        let named = self.text(name).or_else(|_| self.block_text(name))?;
        let path = self.folder.join(named);
        fs::read(&path).map_err(|e| Unreadable(format!("{}: {e}", path.display())))
    }

    /// The fixture that the member `name` points at, as JSON.
    ///
    /// # Errors
    ///
    /// As [`fixture`](Self::fixture), or the file is not JSON.
    pub fn fixture_json(&self, name: &str) -> Result<Json, Unreadable> {
        let text = String::from_utf8(self.fixture(name)?)
            .map_err(|e| Unreadable(format!("`{name}`: {e}")))?;
        json::parse(&text).map_err(|e| Unreadable(format!("`{name}`: {e}")))
    }

    fn lacks(&self, name: &str, what: &str) -> Unreadable {
        let found = self.get(name).map_or("nothing", Json::kind);
        Unreadable(format!(
            "case {}/{}: `{name}` should be {what}, found {found}",
            self.section, self.id
        ))
    }
}

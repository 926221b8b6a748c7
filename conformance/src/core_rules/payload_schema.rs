//! `payload_schema` and `payload_schema_unicode`: the keyword subset of contract §17A.

use babelqueue_core::schema::Schema;

use crate::{Case, Met, Unreadable, same};

pub(super) fn run(case: &Case) -> Met {
    let schema = case
        .block
        .get("schema")
        .ok_or_else(|| Unreadable("the section has no `schema`".to_owned()))?;
    let schema = Schema::parse(&schema.to_string())?;
    let checked = schema.check(&case.need("data")?.to_string());
    same("valid", &checked.is_ok(), &case.flag("valid")?)
}

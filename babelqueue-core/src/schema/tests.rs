use super::*;

fn schema(text: &str) -> Schema {
    Schema::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The first violation, or `ok`.
fn checked(schema_text: &str, data: &str) -> String {
    match schema(schema_text).check(data) {
        Ok(()) => "ok".to_owned(),
        Err(violation) => violation.to_string(),
    }
}

const ORDER: &str = r#"{
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["order_id", "lines"],
    "properties": {
        "order_id": {"type": "integer", "minimum": 1},
        "amount": {"type": "number", "minimum": 0},
        "currency": {"enum": ["USD", "EUR"]},
        "paid": {"type": "boolean"},
        "note": {"type": "null"},
        "kind": {"const": "order"},
        "lines": {"type": "array", "items": {
            "type": "object",
            "required": ["sku"],
            "properties": {"sku": {"type": "string", "minLength": 3}}
        }}
    },
    "additionalProperties": false
}"#;

#[test]
fn each_rule_has_its_code_and_its_place() {
    for (data, expected) in [
        (r#"{"order_id":1,"lines":[]}"#, "ok"),
        (r#" {"lines":[{"sku":"abc","x":1}],"order_id":1e2} "#, "ok"),
        ("[]", "<root>: not_an_object"),
        ("null", "<root>: not_an_object"),
        ("{}", "order_id: missing_required"),
        (r#"{"order_id":1}"#, "lines: missing_required"),
        (r#"{"order_id":"1","lines":[]}"#, "order_id: not_an_integer"),
        (r#"{"order_id":1.5,"lines":[]}"#, "order_id: not_an_integer"),
        (
            r#"{"order_id":true,"lines":[]}"#,
            "order_id: not_an_integer",
        ),
        (r#"{"order_id":0,"lines":[]}"#, "order_id: below_minimum"),
        (r#"{"order_id":1,"lines":{}}"#, "lines: not_an_array"),
        (r#"{"order_id":1,"lines":[3]}"#, "lines[0]: not_an_object"),
        (
            r#"{"order_id":1,"lines":[{"sku":"abc"},{}]}"#,
            "lines[1].sku: missing_required",
        ),
        (
            r#"{"order_id":1,"lines":[{"sku":7}]}"#,
            "lines[0].sku: not_a_string",
        ),
        (
            r#"{"order_id":1,"lines":[{"sku":"ab"}]}"#,
            "lines[0].sku: below_min_length",
        ),
        (
            r#"{"order_id":1,"lines":[],"amount":"9"}"#,
            "amount: not_a_number",
        ),
        (
            r#"{"order_id":1,"lines":[],"amount":-1e-400}"#,
            "amount: below_minimum",
        ),
        (
            r#"{"order_id":1,"lines":[],"currency":"GBP"}"#,
            "currency: not_in_enum",
        ),
        (
            r#"{"order_id":1,"lines":[],"paid":0}"#,
            "paid: not_a_boolean",
        ),
        (
            r#"{"order_id":1,"lines":[],"note":false}"#,
            "note: not_null",
        ),
        (
            r#"{"order_id":1,"lines":[],"kind":"Order"}"#,
            "kind: wrong_const",
        ),
        (
            r#"{"order_id":1,"lines":[],"extra":1}"#,
            "extra: additional_not_allowed",
        ),
        ("{", "<root>: not_json"),
        ("{} {}", "<root>: not_json"),
    ] {
        assert_eq!(checked(ORDER, data), expected, "{data}");
    }
}

#[test]
fn members_are_checked_in_the_order_of_the_document() {
    let both = |first: &str, second: &str| {
        let data = format!(r#"{{"order_id":1,"lines":[],{first},{second}}}"#);
        checked(ORDER, &data)
    };
    let (extra, amount) = (r#""extra":1"#, r#""amount":"x""#);
    assert_eq!(both(extra, amount), "extra: additional_not_allowed");
    assert_eq!(both(amount, extra), "amount: not_a_number");
}

#[test]
fn const_comes_before_enum_before_type_before_required() {
    let rules = r#"{"const": {"a": 1}, "enum": [{"a": 2}], "type": "object", "required": ["b"]}"#;
    assert_eq!(checked(rules, r#"{"a":2}"#), "<root>: wrong_const");
    assert_eq!(checked(rules, r#"{"a":1}"#), "<root>: not_in_enum");
    let rules = r#"{"enum": [7], "type": "string"}"#;
    assert_eq!(checked(rules, "7"), "<root>: not_a_string");
    let rules = r#"{"type": "object", "required": ["b"], "additionalProperties": false}"#;
    assert_eq!(checked(rules, r#"{"a":1}"#), "b: missing_required");
}

#[test]
fn without_one_word_for_a_type_only_const_and_enum_are_checked() {
    for rules in [
        r#"{"required": ["a"], "minimum": 5, "minLength": 5, "items": {"type": "null"}}"#,
        r#"{"type": ["object", "null"], "required": ["a"], "additionalProperties": false}"#,
    ] {
        for data in [r#"{"b":1}"#, "1", r#""a""#, "[1]"] {
            assert_eq!(checked(rules, data), "ok", "{rules} {data}");
        }
    }
    assert_eq!(
        checked(r#"{"type": ["object"], "enum": [1]}"#, "2"),
        "<root>: not_in_enum"
    );
}

#[test]
fn numbers_are_compared_by_value_and_not_rounded() {
    let least = r#"{"type": "integer", "minimum": 9007199254740993}"#;
    assert_eq!(checked(least, "9007199254740992"), "<root>: below_minimum");
    assert_eq!(checked(least, "9007199254740993.0"), "ok");
    assert_eq!(checked(r#"{"const": 1.0}"#, "1"), "ok");
    assert_eq!(checked(r#"{"const": 1}"#, "true"), "<root>: wrong_const");
    assert_eq!(checked(r#"{"enum": [0]}"#, "false"), "<root>: not_in_enum");
}

#[test]
fn a_strings_length_is_its_code_points() {
    for (text, length) in [
        (r#""abc""#, 3),
        (r#""ğü""#, 2),
        (r#""😀""#, 1),
        (r#""\ud83d\ude00""#, 1),
        (r#""e\u0301""#, 2),
        (r#""\n""#, 1),
        (r#""""#, 0),
    ] {
        let at_least = |n| checked(&format!(r#"{{"type":"string","minLength":{n}}}"#), text);
        assert_eq!(at_least(length), "ok", "{text}");
        assert_eq!(at_least(length + 1), "<root>: below_min_length", "{text}");
    }
}

#[test]
fn names_are_compared_after_unescaping_and_the_last_value_counts() {
    let rules = r#"{"type":"object","properties":{"\u0061":{"type":"null"}}}"#;
    assert_eq!(checked(rules, r#"{"a":1}"#), "a: not_null");
    assert_eq!(checked(rules, r#"{"\u0061":1}"#), "a: not_null");
    assert_eq!(checked(rules, r#"{"a":1,"a":null}"#), "ok");
    assert_eq!(checked(rules, r#"{"a":null,"a":1}"#), "a: not_null");
}

#[test]
fn unknown_keywords_and_forms_are_ignored() {
    let rules = r#"{
        "type": "object", "maxProperties": 0, "patternProperties": 7, "x-gdpr-sensitive": true,
        "additionalProperties": {"type": "null"},
        "properties": {"any": true, "tuple": {"type": "array", "items": [{"type": "null"}]}}
    }"#;
    assert_eq!(checked(rules, r#"{"any":1,"tuple":[1],"other":1}"#), "ok");
}

#[test]
fn a_schema_that_cannot_be_is_refused_with_its_place() {
    for (text, expected) in [
        ("", "the schema at <root> is not JSON"),
        (
            "true",
            "the schema at <root> is a boolean, expected an object",
        ),
        (
            r#"{"type": "strnig"}"#,
            "the schema at <root> has a `type` that is a string, expected a type's name",
        ),
        (
            r#"{"type": 7}"#,
            "the schema at <root> has a `type` that is a number, expected a string",
        ),
        (
            r#"{"properties": {"a": {"items": {"required": "b"}}}}"#,
            "the schema at a[] has a `required` that is a string, expected an array of strings",
        ),
        (
            r#"{"required": [1]}"#,
            "the schema at <root> has a `required` that is an array, expected an array of strings",
        ),
        (
            r#"{"properties": {"a": false}}"#,
            "the schema at a is a boolean, expected an object",
        ),
        (
            r#"{"properties": []}"#,
            "the schema at <root> has a `properties` that is an array, expected an object",
        ),
        (
            r#"{"enum": {}}"#,
            "the schema at <root> has a `enum` that is an object, expected an array",
        ),
        (
            r#"{"minLength": -1}"#,
            "the schema at <root> has a `minLength` that is a number, expected a whole number from 0 up",
        ),
        (
            r#"{"minimum": "1"}"#,
            "the schema at <root> has a `minimum` that is a string, expected a number",
        ),
    ] {
        let error = Schema::parse(text).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn nesting_is_bounded_in_schemas_and_free_in_payloads() {
    let nested = |depth| r#"{"items":"#.repeat(depth) + "{}" + &"}".repeat(depth);
    assert!(Schema::parse(&nested(128)).is_ok());
    let error = Schema::parse(&nested(129)).expect_err("too deep");
    assert!(error.to_string().ends_with("is nested too deep"), "{error}");
    assert!(Schema::parse(&nested(10_000)).is_err());

    let array = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (keyword, before, after) in [("const", "", ""), ("enum", "[0,", "]")] {
        let schema = |depth| format!(r#"{{"{keyword}":{before}{}{after}}}"#, array(depth));
        let most = 128 - before.len().min(1);
        assert_eq!(checked(&schema(most), &array(most)), "ok", "{keyword}");
        let error = Schema::parse(&schema(most + 1)).expect_err("too deep");
        let expected = format!("has a `{keyword}` that is nested too deep");
        assert!(error.to_string().ends_with(&expected), "{error}");
        assert!(Schema::parse(&schema(100_000)).is_err());
        // The payload may be as deep as it likes.
        assert_ne!(checked(&schema(most), &array(100_000)), "ok");
    }

    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        checked(r#"{"type":"array","items":{"type":"array"}}"#, &deep),
        "ok"
    );
    assert_eq!(checked(r#"{"const":[[1]]}"#, &deep), "<root>: wrong_const");
}

mod envelopes {
    use super::*;

    fn checked(body: &str) -> Result<(), InvalidPayload> {
        let schemas = Schemas::new().with(
            "urn:a",
            schema(r#"{"type":"object","required":["order_id"]}"#),
        );
        let decoded = Envelope::decode(body.to_owned()).expect("an envelope");
        check(&schemas, &decoded.envelope)
    }

    #[test]
    fn data_is_held_against_the_schema_of_its_urn() {
        assert_eq!(checked(r#"{"job":"urn:a","data":{"order_id":1}}"#), Ok(()));
        let invalid = checked(r#"{"job":"urn:a","data":{ }}"#).expect_err("no order_id");
        assert_eq!(
            invalid.to_string(),
            r#"the data of "urn:a" does not match its schema: order_id: missing_required"#
        );
    }

    #[test]
    fn a_urn_without_a_schema_passes() {
        assert_eq!(checked(r#"{"job":"urn:b","data":{}}"#), Ok(()));
    }

    #[test]
    fn no_data_counts_as_an_empty_object() {
        for body in [r#"{"job":"urn:a"}"#, r#"{"job":"urn:a","data":null}"#] {
            let invalid = checked(body).expect_err("no order_id");
            assert_eq!(invalid.violation.code, Code::MissingRequired);
        }
    }
}

mod registries {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A folder that is gone when the test is.
    struct Folder(PathBuf);

    impl Folder {
        fn with(files: &[(&str, &str)]) -> Self {
            let name = format!("babelqueue-registry-{}", uuid::Uuid::new_v4());
            let folder = Self(std::env::temp_dir().join(name));
            for (name, content) in files {
                let file = folder.0.join(name);
                fs::create_dir_all(file.parent().expect("has a parent")).expect("a folder");
                fs::write(file, content).expect("a file");
            }
            folder
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refused(manifest: &str) -> RegistryError {
        let folder = Folder::with(&[
            ("sub/registry.json", manifest),
            ("sub/any.json", "{}"),
            ("sub/bad.json", r#"{"type":"strnig"}"#),
            ("outside.json", "{}"),
        ]);
        Registry::open(folder.0.join("sub")).expect_err(manifest)
    }

    #[test]
    fn schemas_are_read_relative_to_the_manifest() {
        let folder = Folder::with(&[
            (
                "registry.json",
                r#"{"version":1,"schemas":[
                    {"urn":"urn:a","schema":"a.json","owner":"shop","status":"active"},
                    {"urn":"urn:b","schema":"./deep/b.json"}]}"#,
            ),
            ("a.json", r#"{"type":"object"}"#),
            ("deep/b.json", r#"{"type":"array"}"#),
        ]);
        for path in [folder.0.clone(), folder.0.join("registry.json")] {
            let registry = Registry::open(path).expect("a registry");
            let accepts = |urn, data| {
                let schema = registry.schema_for(urn);
                schema.map(|schema| schema.check(data).is_ok())
            };
            assert_eq!(accepts("urn:a", "{}"), Some(true));
            assert_eq!(accepts("urn:b", "{}"), Some(false));
            assert_eq!(accepts("urn:c", "{}"), None);
        }
    }

    #[test]
    fn urns_are_named_once_and_never_empty() {
        let repeated = r#"{"schemas":[
            {"urn":"urn:a","schema":"any.json"},{"urn":"urn:a","schema":"any.json"}]}"#;
        assert!(matches!(
            refused(repeated),
            RegistryError::RepeatedUrn { urn, .. } if urn == "urn:a"
        ));
        let empty = r#"{"schemas":[{"urn":"","schema":"any.json"}]}"#;
        assert!(matches!(refused(empty), RegistryError::EmptyUrn { .. }));
    }

    #[test]
    fn paths_do_not_leave_the_folder() {
        let at = |path: &str| {
            let path = serde_json::to_string(path).expect("a string");
            refused(&format!(
                r#"{{"schemas":[{{"urn":"urn:a","schema":{path}}}]}}"#
            ))
        };
        let absolute = Folder::with(&[("any.json", "{}")]).0.join("any.json");
        for path in [
            "../outside.json",
            "x/../../outside.json",
            &absolute.to_string_lossy(),
        ] {
            assert!(matches!(at(path), RegistryError::Escapes { .. }), "{path}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_leave_the_folder_either() {
        let folder = Folder::with(&[
            (
                "sub/registry.json",
                r#"{"schemas":[{"urn":"urn:a","schema":"link.json"}]}"#,
            ),
            ("sub/any.json", "{}"),
            ("outside.json", "{}"),
        ]);
        let link = folder.0.join("sub/link.json");
        std::os::unix::fs::symlink("any.json", &link).expect("a link");
        assert!(Registry::open(folder.0.join("sub")).is_ok());
        fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink("../outside.json", &link).expect("a link");
        let error = Registry::open(folder.0.join("sub")).expect_err("leads out");
        assert!(matches!(error, RegistryError::Escapes { .. }), "{error}");
    }

    #[test]
    fn files_are_what_they_should_be() {
        for manifest in ["", "[]", "{}", r#"{"schemas":[{"urn":"urn:a"}]}"#] {
            assert!(matches!(refused(manifest), RegistryError::Manifest { .. }));
        }
        let missing = r#"{"schemas":[{"urn":"urn:a","schema":"none.json"}]}"#;
        assert!(matches!(refused(missing), RegistryError::Read { .. }));
        let bad = r#"{"schemas":[{"urn":"urn:a","schema":"bad.json"}]}"#;
        assert!(matches!(
            refused(bad),
            RegistryError::Schema { urn, .. } if urn == "urn:a"
        ));
        assert!(Registry::open("/nowhere/registry.json").is_err());
    }
}

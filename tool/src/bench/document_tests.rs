// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON: its form, and files that are something else.

use super::super::samples;
use super::*;

#[test]
fn json_has_the_agreed_fields() {
    let json: serde_json::Value = serde_json::from_str(&samples::document().json().unwrap()).unwrap();
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        keys(&json),
        "ablation command date elsewhere host isa platform qemu rows schema subjects tool traces weights work"
    );
    assert_eq!(json["schema"], 3);
    assert_eq!(keys(&json["host"]), "cores cpu os");
    assert_eq!(keys(&json["subjects"][0]), "mitigations mode subject title version");
    for row in 0..5 {
        assert_eq!(
            keys(&json["rows"][row]),
            "classes counter cycles devices error exits footprint inside instructions isa iterations mode parts platform \
             recorded registers row subject what",
            "all rows have the same keys; what is unknown is null"
        );
    }
    assert_eq!(json["rows"][0]["instructions"], 48.0);
    assert_eq!(json["rows"][2]["recorded"], true);
    assert_eq!(json["rows"][4]["error"], "Xen does not boot");
    let work = serde_json::to_value(WorkFigure::default()).unwrap();
    assert_eq!(
        keys(&work),
        "error exits inside instructions isa operations outside ratio recorded row title under version what"
    );
    let part = serde_json::to_value(Part { distribution: vec![(48, 65792)], ..Part::default() }).unwrap();
    assert_eq!(keys(&part), "cpu cpus distribution instructions per_operation reason");
    assert_eq!(part["distribution"], serde_json::json!([[48, 65792]]));
}

#[test]
fn what_is_saved_can_be_read() {
    let mut document = samples::document();
    document.traces.push(Trace { row: "null-hypercall".to_owned(), ..Trace::default() });
    document.rows[0].parts.push(Part { distribution: vec![(48, 65792)], ..Part::default() });
    let text = document.json().unwrap();
    assert_eq!(Document::parse(&text).unwrap(), document);
    assert_eq!(Document::parse(&text).unwrap().json().unwrap(), text);
}

#[test]
fn strings_are_harmless_on_a_terminal() {
    let mut document = samples::document();
    document.subjects[0].title = "a\u{1b}[2Jb".to_owned();
    document.rows[0].classes.insert("i\u{7}sb".to_owned(), 1.0);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), document.json().unwrap()).unwrap();
    let read = Document::load(file.path()).unwrap();
    assert_eq!(read.subjects[0].title, "a[2Jb");
    assert!(read.rows[0].classes.contains_key("isb"));
}

#[test]
fn other_files_are_refused_with_advice() {
    for (text, what) in [
        ("row", "no JSON"),
        ("{}", "it has no `schema`"),
        ("{\"schema\": 1, \"rows\": []}", "schema 1; this version reads 3"),
        ("{\"schema\": 3}", "no saved run: missing field"),
    ] {
        let failure = Document::parse(text).unwrap_err().to_string();
        assert!(failure.contains(what) && failure.contains("--save"), "{text}: {failure}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up crates, good ones and bad ones.

use super::*;

/// Makes a package of these files below `src/`, and checks it.
fn wrong(files: &[(&str, &str)], layers: Option<&Layers>) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("src/left_behind")).unwrap();
    for (name, text) in files {
        let path = folder.path().join("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    check_package(folder.path(), layers, true).unwrap()
}

/// What is wrong with files beside a `lib.rs` that has modules `a`, `b` and `c`.
fn of_three(a: &str, b: &str, c: &str) -> Vec<String> {
    wrong(&[("lib.rs", "mod a; pub mod b;\npub(crate) mod c;"), ("a.rs", a), ("b.rs", b), ("c.rs", c)], None)
}

fn layers() -> Layers {
    Layers::read("## Layers\n\n| layer | what |\n|---|---|\n| `cpu/` | x |\n| `time.rs` | y |\n| `vm/` | z |\n| `lib.rs` | |\n\n## Next\n| `no/` |")
        .unwrap()
}

#[test]
fn the_table_is_read() {
    let layers = layers();
    assert_eq!(layers, Layers(["cpu/", "time.rs", "vm/", "lib.rs"].map(str::to_owned).into()));
    assert_eq!(layers.of(Path::new("src/cpu/area.rs")), Some(0));
    assert_eq!(layers.of(Path::new("src/vm/mod.rs")), Some(2));
    assert_eq!(layers.of(Path::new("src/other.rs")), None);
    assert!(Layers::read("# Nothing").is_err());
}

#[test]
fn a_clean_tree_passes() {
    assert!(
        of_three("use crate::{b::B, c};", "use super::c::{self, C as D};", "use std::fmt; pub struct C;")
            .is_empty()
    );
}

#[test]
fn a_circle_is_found_with_its_files_in_order() {
    let circle = ["src/a.rs:2 → src/b.rs:1 → src/c.rs:1 → src/a.rs: a circle"];
    assert_eq!(of_three("\nuse crate::b::B;", "use super::c;", "fn f() { crate::a::f(); }"), circle);
}

#[test]
fn every_way_to_name_another_file_counts() {
    for way in [
        "use crate::b::B;",
        "pub use super::b;",
        "use crate::{c::C, b::{self}};",
        "use {crate::c, super::{c as d, b as e}};",
        "use crate::b::*;",
        "fn f() -> usize { crate::b::N }",
        "fn f() { use super::b::N; }",
        "use super::b as other; fn f() { other::g() }",
        "#[cfg(feature = \"x\")] use crate::b::B;",
        "#[cfg(not(test))] use crate::b::B;",
        "mod inner { use super::super::b::B; }",
        "mod inner { fn f() { super::super::b::g() } }",
        "macro_rules! m { () => { $crate::b::g() } }",
        "fn f() { asm!(\"call {}\", sym crate::b::g) }",
        "fn f() { g('\\'', '\"', \"\\\"\", 'x'); crate::b::g(); }",
        "fn f<'a>(x: &'a str) { r#\"\"#; crate::b::g(); }",
        "use /* } */ crate::b::B; // {",
        "use super::B; ",
    ] {
        let found = wrong(
            &[
                ("lib.rs", "mod a; mod b; mod c; pub use b::B;"),
                ("a.rs", way),
                ("b.rs", "use crate::a::x; pub struct B;"),
                ("c.rs", ""),
            ],
            None,
        );
        assert_eq!(found.len(), 1, "{way}: {found:?}");
    }
}

#[test]
fn what_is_no_arrow() {
    for way in [
        "",
        "// use crate::b::B;",
        "/* /* */ use crate::b::B; */",
        "fn f() { \"crate::b::B\"; }",
        "use b::B;",
        "use ::b::B;",
        "use core::fmt; fn f() { u8::from_str(); b::g(); }",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)] use crate::b::{B, C}; struct S;",
        "#[cfg(all(test, target_os = \"linux\"))] fn f() { crate::b::g(); }",
        "struct S { #[cfg(test)] b: crate::b::B, c: u8 }",
        "fn f() -> impl Sized + use<'_> {}",
        "#![cfg(test)] use crate::b::B;",
        "use crate::a::b;",
    ] {
        assert!(of_three(way, "use crate::a::x;", "").is_empty(), "{way}");
    }
}

#[test]
fn children_and_parents_are_files_too() {
    let files = |parent: &'static str, child: &'static str| {
        let styles = ["a/mod.rs", "a.rs"];
        styles.map(|name| wrong(&[("lib.rs", "mod a;"), (name, parent), ("a/inner.rs", child)], None).len())
    };
    assert_eq!(files("mod inner; use inner::X; struct Y;", "use super::Y; pub struct X;"), [1, 1]);
    assert_eq!(files("mod inner; fn f() { inner::g() } struct Y;", "use crate::a::Y;"), [1, 1]);
    assert_eq!(files("mod inner; struct Y;", "use super::Y; pub struct X;"), [0, 0]);
    assert_eq!(files("mod inner; pub use inner::X;", "pub struct X;"), [0, 0]);
    assert_eq!(files("#[cfg(test)] mod inner; pub struct Y;", "use super::Y; pub struct X;"), [0, 0]);
}

#[test]
fn a_name_that_is_passed_on_is_its_definers() {
    let lib = "mod a; mod b; mod c; pub use b::B; pub use c::*;";
    let passed = |a, b| wrong(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b), ("c.rs", "pub struct C;")], None);
    assert_eq!(passed("use crate::B;", "pub struct B; use crate::a::f;").len(), 1);
    assert!(passed("use crate::{B, C};", "pub struct B;").is_empty());
    let exported = "#[macro_export] macro_rules! b { () => {} }";
    assert!(passed("fn f() { crate::b!(); }", exported).is_empty());
}

#[test]
fn modules_may_have_other_files_and_packages_several_crates() {
    let circle = [
        ("lib.rs", "#[path = \"other.rs\"] mod a; mod b;"),
        ("other.rs", "use crate::b::B;"),
        ("b.rs", "use super::a::A;"),
    ];
    assert_eq!(wrong(&circle, None).len(), 1);
    let programs = [
        ("lib.rs", ""),
        ("bin/x.rs", "fn main() {}"),
        ("bin/y/main.rs", "mod z; use z::Z; struct Y;"),
        ("bin/y/z.rs", "use crate::Y;"),
    ];
    assert_eq!(wrong(&programs, None).len(), 1);
}

#[test]
fn an_arrow_upwards_is_found() {
    let tree = |cpu: &'static str, time: &'static str| {
        [
            ("lib.rs", "pub mod cpu; pub mod time; pub mod vm;"),
            ("cpu/mod.rs", "pub mod area;"),
            ("cpu/area.rs", cpu),
            ("time.rs", time),
            ("vm/mod.rs", "use crate::{cpu::area, time::Clock};"),
            ("vm/boot.S", ""),
            ("tests.rs", ""),
        ]
    };
    let layers = layers();
    assert!(wrong(&tree("", "use crate::cpu::area;"), Some(&layers)).is_empty());
    assert_eq!(
        wrong(&tree("\n\nuse crate::time::Clock;", ""), Some(&layers)),
        ["src/cpu/area.rs:3: cpu/ is below time.rs, and uses src/time.rs"]
    );
    assert_eq!(
        wrong(&tree("pub fn f() { super::super::g() }", ""), Some(&layers)),
        ["src/cpu/area.rs:1: cpu/ is below lib.rs, and uses src/lib.rs"]
    );
}

#[test]
fn a_file_without_a_layer_is_found() {
    let files = [("lib.rs", "pub mod uart;"), ("uart.rs", ""), ("boot.S", "")];
    let expected =
        ["boot.S", "uart.rs"].map(|name| format!("src/{name}: no layer of ARCHITECTURE.md names it"));
    assert_eq!(wrong(&files, Some(&layers())), expected);
}

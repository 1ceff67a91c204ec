// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The public API of the crates that others can use, against the stored listings.
//!
//! `UPDATE_API=1 cargo test -p turnstile-suite --test api` stores what is there now: a change that breaks a caller wants a new
//! second number of the version, and a line in the changelog.

use std::path::Path;
use std::process::Command;

/// The packages and their folders.
const CRATES: [(&str, &str); 8] = [
    ("turnstile-vgic", "core/vgic"),
    ("turnstile-vapic", "core/vapic"),
    ("turnstile-paging", "core/paging"),
    ("turnstile-trapmap", "core/trapmap"),
    ("turnstile-vm", "core/vm"),
    ("turnstile-mitigation", "core/mitigation"),
    ("turnstile-pci", "core/pci"),
    ("turnstile-virtio", "core/virtio"),
];

/// Lists the public items of a package, one to a line.
fn listing(root: &Path, package: &str) -> String {
    let target = root.join("target/api");
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        // rustdoc's JSON is not a stable feature; the toolchain is a fixed one, and so is its format.
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .args(["rustdoc", "--quiet", "--lib", "--package", package, "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .status()
        .expect("cargo starts");
    assert!(status.success(), "cargo rustdoc of {package} failed");
    let json = target.join("doc").join(format!("{}.json", package.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build()
        .expect("rustdoc's JSON is of the version that is expected");
    api.items().map(|item| format!("{item}\n")).collect()
}

#[test]
fn the_public_api_is_the_stored_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace");
    let update = std::env::var_os("UPDATE_API").is_some();
    for (package, folder) in CRATES {
        let stored = root.join(folder).join("public-api.txt");
        let now = listing(root, package);
        if update {
            std::fs::write(&stored, &now).expect("the listing can be written");
        }
        let before = std::fs::read_to_string(&stored).unwrap_or_default();
        let (before, now): (Vec<_>, Vec<_>) = (before.lines().collect(), now.lines().collect());
        let missing: Vec<_> = before.iter().filter(|line| !now.contains(line)).collect();
        let new: Vec<_> = now.iter().filter(|line| !before.contains(line)).collect();
        assert!(
            missing.is_empty() && new.is_empty(),
            "the public API of {package} has changed: gone {missing:#?}, new {new:#?}; see the head of this test"
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tool prints on terminals of 40, 80 and 200 columns, and on one that says it has none.

mod common;

use std::process::Command;

use common::Folder;
use common::saved::{row, saved};
use rexpect::session::spawn_command;
use serde_json::json;

const COMMANDS: [&str; 15] = [
    "demo", "run", "ls", "console", "logs", "start", "stop", "restart", "bench", "exits", "meter", "top",
    "check", "build", "doctor",
];

/// What a command prints on a terminal of so many columns, without colours.
fn printed(folder: &Folder, columns: usize, arguments: &str) -> String {
    let tool = assert_cmd::cargo::cargo_bin!("turnstile");
    let script = format!("stty rows 24 cols {columns}; {} {arguments}", tool.display());
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).current_dir(folder.path()).env("TERM", "xterm").env_remove("COLUMNS");
    command.envs(folder.environment());
    let mut session = spawn_command(command, Some(60_000)).unwrap();
    // Each byte has come as a character.
    let bytes: Vec<u8> = session.exp_eof().unwrap().chars().filter_map(|c| u8::try_from(c).ok()).collect();
    let text = String::from_utf8(bytes).unwrap().replace('\r', "");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, escape)) = rest.split_once('\x1b') {
        plain.push_str(before);
        rest = escape.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// Every line fits, or is one word.
fn assert_fits(folder: &Folder, arguments: &str, parts: &[&str]) {
    for (columns, width) in [(40, 40), (80, 80), (200, 200), (0, 80)] {
        let text = printed(folder, columns, arguments);
        for line in text.lines() {
            let is_word = !line.trim().contains(' ');
            // What is wrong is quoted as the user wrote it.
            let is_quoted =
                line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with("| ");
            let fits = line.chars().count() <= width || is_word || is_quoted;
            assert!(fits, "{arguments}, {columns} columns: {line:?}\n{text}");
        }
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        parts
            .iter()
            .for_each(|part| assert!(words.contains(part), "{arguments}, {columns}, {part:?}: {text}"));
    }
}

#[test]
fn help_fits() {
    let folder = Folder::new();
    assert_fits(&folder, "--help", &["Usage: turnstile", "Exit codes:"]);
    for command in COMMANDS {
        assert_fits(&folder, &format!("{command} --help"), &["Usage: turnstile", "Exit codes:"]);
    }
}

#[test]
fn reports_fit() {
    let folder = Folder::with_vms(&["a-name-of-some-length", "another"]);
    assert_fits(&folder, "check m.toml", &["m.toml: ok", "1 vCPU on physical CPU 0, 16MiB, machine virt"]);
    assert_fits(&folder, "ls", &["no machine is running"]);
    assert_fits(&folder, "doctor", &["Rust toolchain", "Debian guest, power64"]);
}

/// A run with everything that `bench` can show.
#[test]
fn measurements_fit() {
    let folder = Folder::new();
    let mut run = saved();
    run["command"] =
        json!("./x bench --rows null-hypercall,self-sgi --subjects all --platform all --classes --ablate");
    let rows = run["rows"].as_array_mut().unwrap();
    for (name, instructions) in
        [("sgi-to-1-of-32", 150.0), ("sgi-to-31-of-32", 152.0), ("self-sgi-overflow-90", 123_456.0)]
    {
        rows.push(row("turnstile", false, instructions));
        rows.last_mut().unwrap()["row"] = json!(name);
    }
    run["elsewhere"] = json!([]);
    for platform in ["max-gicv2", "max-gicv3-nvhe", "cortex-a57-gicv3", "neoverse-n1-gicv3", "raspi4b"] {
        let mut figure = row("turnstile", false, 7_654_321.0);
        figure["platform"] = json!(platform);
        run["elsewhere"].as_array_mut().unwrap().push(figure);
    }
    let work = |under: &str, ratio: f64| {
        json!({
            "row": "pipe-2cpus", "what": "a byte to another process and back, each on a CPU of its own", "under": under,
            "title": under, "version": "", "isa": "arm64", "recorded": false, "error": null, "instructions": 17_232.0,
            "ratio": ratio, "inside": null, "outside": 350.0, "exits": null, "operations": null
        })
    };
    run["work"] =
        json!([work("bare", 1.0), work("turnstile", 1.021), work("kvm-vhe", 1.5), work("xen", 2.25)]);
    let without =
        |row: &str, off: &str| json!({"row": row, "off": off, "instructions": 56.0, "classes": {"isb": 3.0}});
    let both = |off| ["null-hypercall", "virtual-ipi"].map(|row| without(row, off));
    let ablated = [both("none"), both("lr-read-on-demand")].concat();
    let seed = json!({"row": "null-hypercall", "source": "seed 000, platforms A, B, C-v2 and C-v3: its techniques",
        "seed_percent": [-38.0, -39.0, -21.0, -20.0], "here_percent": -83.8});
    run["ablation"] = json!({
        "techniques": [{"name": "lr-read-on-demand", "seed": "000", "acts": "", "saves": ""}],
        "rows": ablated, "seed": [seed]
    });
    folder.write("all.json", run.to_string().as_bytes());
    let parts = [
        "They are not cycles: an emulator has none",
        "self-sgi-overflow-90",
        "123456",
        "6 + 5, 4",
        "Turnstile by platform",
        "7654321",
        "31 of 32 152",
        "17232 (1.021, 350 outside)",
        "17232 (2.250, 350 outside)",
        "operations by class",
        "lr-read-on-demand [000]",
        "−38 %, −39 %, −21 %, −20 %",
    ];
    assert_fits(&folder, "bench --from all.json --classes", &parts);
    assert_fits(&folder, "bench --from all.json --trace", &["0x40200804", "eret"]);
}

#[test]
fn mistakes_fit() {
    let folder = Folder::with_vms(&["one"]);
    folder.write("bad.toml", b"[[vm]]\nname = \"one\"\nkernel = \"no-such-kernel\"\nmemory = \"a lot of it, as much as there is\"\nvcpu = 9999999\n");
    assert_fits(&folder, "check bad.toml", &["unknown key `vcpu`", "did you mean `vcpus`?", "bad.toml:5:1"]);
    assert_fits(&folder, "check no-such-file.toml", &["error: ", "no-such-file.toml"]);
    assert_fits(&folder, "run m.toml --image no-such-image", &["there is no image no-such-image", "help: "]);
    assert_fits(&folder, "bench --rows no-such-row,null-hypercal", &["error: ", "help: "]);
    assert_fits(&folder, "stop nothing", &["error: "]);
    assert_fits(&folder, "run --no-such-option --an-other", &["error: ", "--help"]);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documents: their links lead somewhere, and the book's list has every page.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use turnstile::bench::platform::Platform;
use turnstile::bench::subjects::Subject;
use turnstile::config::{self, Board, Surroundings};
use turnstile::isa::Isa;
use turnstile_machine::map::MAX_VCPUS;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace")
}

fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    files.sort();
    files
}

/// The anchors of a page: its headings as mdBook and forges name them.
fn anchors(text: &str) -> Vec<String> {
    let headings =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#'));
    let name = |heading: &str| -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    headings.map(name).collect()
}

/// What stands in the parentheses of `[…](…)`, outside code.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| {
            part.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = [root().to_path_buf(), root().join("docs/src"), root().join("docs/src/adr")];
    let mut broken = Vec::new();
    for page in pages.iter().flat_map(|folder| markdown(folder)) {
        let text = fs::read_to_string(&page).expect("a page can be read");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let found = target.exists()
                && (anchor.is_empty()
                    || fs::read_to_string(&target)
                        .is_ok_and(|text| anchors(&text).iter().any(|it| it == anchor)));
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_book_lists_every_page() {
    let book = root().join("docs/src");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("the book has a list");
    let listed: Vec<PathBuf> = links(&summary).iter().map(|link| book.join(link)).collect();
    let pages = [markdown(&book), markdown(&book.join("adr"))].concat();
    let missing: Vec<_> =
        pages.iter().filter(|page| !page.ends_with("SUMMARY.md") && !listed.contains(page)).collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:#?}");
}

/// The sources that a document names by their whole path.
fn sources(text: &str) -> impl Iterator<Item = &str> {
    let paths = text.split(|c: char| !(c.is_alphanumeric() || "/_.-*".contains(c)));
    paths.map(|path| path.trim_end_matches('.')).filter(|path| {
        let (first, last) = (path.split('/').next().unwrap_or(path), path.rsplit('.').next().unwrap_or(path));
        ["arch", "core", "guests", "hypervisor", "meter", "peers", "suite", "tool"].contains(&first)
            && ["rs", "S", "ld"].contains(&last)
            && !path.contains('*')
            && !path.contains("NAME")
    })
}

#[test]
fn sources_that_documents_name_exist() {
    let pages = [root().to_path_buf(), root().join("docs/src"), root().join("docs/src/adr")];
    let mut missing = Vec::new();
    for page in
        pages.iter().flat_map(|folder| markdown(folder)).filter(|page| !page.ends_with("CHANGELOG.md"))
    {
        let text = fs::read_to_string(&page).expect("a page can be read");
        let gone = sources(&text).filter(|path| !root().join(path).exists());
        missing.extend(gone.map(|path| format!("{}: {path}", page.display())));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn lists_of_names_and_limits_are_those_of_the_code() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("it can be read");
    let (configuration, commands) = (read("docs/src/configuration.md"), read("docs/src/command-line.md"));
    let row = |text: &str, key: &str| -> String {
        text.lines().find(|line| line.starts_with(&format!("| `{key}"))).expect("there is a row").to_owned()
    };
    let (boards, models) = (row(&configuration, "board`"), row(&configuration, "cpu`"));
    for board in Board::ALL {
        assert!(boards.contains(&format!("`\"{}\"`", board.name())), "{board}");
        for model in board.models() {
            assert!(models.contains(&format!("`{model}`")), "{model}");
        }
    }
    let subjects = row(&commands, "--subjects SUBJECT");
    for subject in Subject::ALL {
        assert!(subjects.contains(&format!("`{}`", subject.name())), "{}", subject.name());
    }
    let platforms = row(&commands, "--platform");
    for platform in Platform::names() {
        assert!(platforms.contains(&format!("`{platform}`")), "{platform}");
    }
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        let sizes = configuration.split("## Sizes").nth(1).expect("there is a chapter");
        assert!(sizes.contains(&format!("`{unit}`")), "{unit}");
    }
    let limit = format!("1 to {MAX_VCPUS}");
    assert!(row(&configuration, "vcpus`").contains(&limit));
    assert!(read("examples/one-linux.toml").contains(&format!("# {limit}. ")));
    assert!(read("docs/src/start-here.md").contains(&format!("give {} vCPUs", MAX_VCPUS + 1)));
}

/// The configurations that a page shows.
fn snippets(text: &str) -> impl Iterator<Item = &str> {
    text.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(snippet, _)| snippet))
}

/// Adds what a page leaves out: the VM around keys, what a VM names, and a VM that has what is described.
fn completed(snippet: &str) -> String {
    let vm = "[[vm]]\nname = \"whole\"\nkernel = \"debian:linux\"\n";
    let mut text = if snippet.starts_with('[') { String::new() } else { vm.to_owned() };
    text.push_str(&snippet.replace("# ...", "kernel = \"debian:linux\""));
    let table: toml::Table = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let tables = |key: &str| table.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    let described =
        |key: &str| -> Vec<&str> { tables(key).filter_map(|one| one.get("name")?.as_str()).collect() };
    let [disks, networks] = ["disk", "network"].map(described);
    if described("vm").is_empty() {
        return format!("{vm}disks = {disks:?}\nnetworks = {networks:?}\n{text}");
    }
    let more = [("disks", "disk", disks, "size = \"1MiB\"\n"), ("networks", "network", networks, "")];
    for (list, key, described, lines) in more {
        let named = tables("vm").filter_map(|vm| vm.get(list)?.as_array()).flatten();
        for name in named.filter_map(toml::Value::as_str).filter(|name| !described.contains(name)) {
            text.push_str(&format!("[[{key}]]\nname = \"{name}\"\n{lines}"));
        }
    }
    text
}

#[test]
fn configurations_in_documents_are_right() {
    let pages = [markdown(root()), markdown(&root().join("docs/src"))].concat();
    let guests = |_: Isa| vec!["selftest".to_owned()];
    let surroundings =
        Surroundings { folder: root(), guests: &guests, services: &["uart".to_owned()], board: None };
    let mut seen = 0;
    // That page is about another kind of file.
    for page in pages.iter().filter(|page| !page.ends_with("weights.md")) {
        let text = fs::read_to_string(page).expect("a page can be read");
        for snippet in snippets(&text) {
            let whole = completed(snippet);
            let problems = config::parse(&whole, &surroundings).err().unwrap_or_default();
            assert!(problems.is_empty(), "{}: {problems:#?}: {whole}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen}");
}

#[test]
fn options_are_described_with_their_commands() {
    let text = fs::read_to_string(root().join("docs/src/command-line.md")).expect("a page can be read");
    let chapter = |command: &str| {
        let names = |chapter: &&str| {
            let heading = chapter.lines().next().unwrap_or_default().replace('`', "");
            heading.split_whitespace().next() == Some(command)
        };
        text.split("\n## ").find(names)
    };
    let control = chapter("Machines").expect("there is a chapter of those without one of their own");
    for command in turnstile::cli::Cli::command().get_subcommands() {
        let said = chapter(command.get_name()).unwrap_or(control);
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            let Some(name) = option.get_long() else { continue };
            assert!(said.contains(&format!("--{name}")), "{}: --{name}", command.get_name());
        }
    }
}

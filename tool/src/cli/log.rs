// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where consoles are written.

use std::path::PathBuf;

use clap::Args;

use crate::config::parse_size;

/// `run --log`
#[derive(Clone, Debug, Args)]
pub struct Log {
    /// Write each console to a file in this folder, with times, and reports of crashed VMs as JSON beside them
    #[arg(long = "log", value_name = "DIR", conflicts_with = "plain")]
    pub folder: Option<PathBuf>,
    /// Put a log file aside when it gets larger than this
    #[arg(long = "log-size", value_name = "SIZE", default_value = "16MiB", value_parser = size)]
    pub size: u64,
    /// Keep so many older files of each
    #[arg(long = "log-count", value_name = "N", default_value_t = 4, value_parser = count)]
    pub count: usize,
}

fn size(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 4 << 10;
    let bytes = parse_size(text).map_err(|(what, help)| format!("{what}; {help}"))?;
    if bytes < LEAST { Err("the least is 4KiB".to_owned()) } else { Ok(bytes) }
}

fn count(text: &str) -> Result<usize, String> {
    const MOST: usize = 1000;
    let count: Option<usize> = text.parse().ok().filter(|count| *count <= MOST);
    count.ok_or_else(|| format!("give a number from 0 to {MOST}"))
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a command line to an exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::failure::Result;
use crate::{prose, ui};

/// Does what the command line says; a failure is printed.
pub fn start<C: Parser>(execute: fn(&C) -> Result<()>) -> ExitCode {
    ui::silence_stream_panics();
    let code = std::panic::catch_unwind(|| command_line(execute)).unwrap_or_else(|panic| {
        if !ui::stream_failed() {
            std::panic::resume_unwind(panic);
        }
        ExitCode::FAILURE
    });
    match ui::lost_output() {
        None => code,
        Some(failure) => {
            failure.print();
            // What went wrong before says more.
            if code == ExitCode::SUCCESS { failure.exit_code() } else { code }
        }
    }
}

/// Reads the command line; help and errors fit the terminal.
fn parse<C: Parser>() -> std::result::Result<C, clap::Error> {
    let mut command = C::command().term_width(prose::within(ui::terminal_width()));
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    C::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// What clap does not fold by itself: lines of usage, and errors.
fn fitting(text: &str, width: Option<u16>) -> String {
    width.map_or_else(|| text.to_owned(), |width| prose::wrap(text, width.into()) + "\n")
}

fn command_line<C: Parser>(execute: fn(&C) -> Result<()>) -> ExitCode {
    let cli = match parse::<C>() {
        Ok(cli) => cli,
        // For --help (0) and for a wrong command line (2).
        Err(text) => {
            let shown = text.render().ansi().to_string();
            if text.use_stderr() {
                let _ = write!(anstream::stderr(), "{}", fitting(&shown, ui::error_width()));
            } else {
                ui::printed(write!(anstream::stdout(), "{}", fitting(&shown, ui::terminal_width())));
            }
            return u8::try_from(text.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    match execute(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

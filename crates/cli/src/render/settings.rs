use super::text::{Style, one_line, paint, table};
use crate::commands::Shown;

/// Settings with their sources, then recipes' places, then lanes.
pub(crate) fn settings(shown: &Shown) -> String {
    let rows: Vec<Vec<String>> = shown
        .settings
        .iter()
        .map(|setting| {
            vec![
                setting.name.clone(),
                one_line(&setting.value, 60),
                setting.source.clone(),
            ]
        })
        .collect();
    let mut text = table(&["SETTING", "VALUE", "FROM"], &rows);
    let rows: Vec<Vec<String>> = shown
        .recipe_places
        .iter()
        .map(|place| {
            vec![
                place.name.to_owned(),
                match &place.path {
                    Some(path) => one_line(&path.display().to_string(), 200),
                    None => "part of mini-ork".to_owned(),
                },
                if place.exists {
                    String::new()
                } else {
                    paint(Style::Dim, "not there")
                },
            ]
        })
        .collect();
    text.push('\n');
    text.push_str(&table(&["RECIPES", "IN THIS ORDER", ""], &rows));
    text.push('\n');
    let rows: Vec<Vec<String>> = shown
        .lanes
        .iter()
        .map(|lane| {
            vec![
                paint(Style::Accent, &lane.lane),
                one_line(&lane.runs, 60),
                one_line(&lane.file, 200),
            ]
        })
        .collect();
    text.push_str(&table(&["LANE", "RUNS", "FROM"], &rows));
    if !shown.roles.is_empty() {
        let rows: Vec<Vec<String>> = shown
            .roles
            .iter()
            .map(|role| {
                vec![
                    role.role.clone(),
                    paint(Style::Accent, &role.lane),
                    one_line(&role.file, 200),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&table(&["ROLE", "LANE", "FROM"], &rows));
    }
    text
}

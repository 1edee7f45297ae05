//! The tables of PostgreSQL match those of SQLite.

use std::collections::{BTreeMap, BTreeSet};

use sallyport_store::{DATABASE_FILE, Store};
use sqlx::{Connection, PgConnection, Row, SqliteConnection};

use crate::postgres::{open, server};

/// A column: its SQLite type, whether it is NOT NULL, and its default value.
type Column = (String, bool, Option<String>);

/// The definition of a table, in terms common to both databases.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    columns: BTreeMap<String, Column>,
    primary_key: Vec<String>,
    /// Columns, and whether the index is partial; `?` for an expression.
    unique: BTreeSet<(Vec<String>, bool)>,
    indexes: BTreeSet<(String, Vec<String>, bool)>,
    /// Column, referenced table, and the action on delete.
    foreign: BTreeSet<(String, String, String)>,
    checks: usize,
    triggers: BTreeSet<String>,
}

async fn of_sqlite(dir: &std::path::Path) -> BTreeMap<String, Table> {
    let url = format!("sqlite://{}", dir.join(DATABASE_FILE).display());
    let mut on = SqliteConnection::connect(&url).await.unwrap();
    let mut tables = BTreeMap::new();
    let rows = sqlx::query("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    for row in rows.fetch_all(&mut on).await.unwrap() {
        let name: String = row.get("name");
        let mut table = Table { checks: row.get::<String, _>("sql").matches("CHECK (").count(), ..Table::default() };
        let columns = sqlx::query("SELECT * FROM pragma_table_info($1) ORDER BY pk").bind(&name);
        for column in columns.fetch_all(&mut on).await.unwrap() {
            let (column_name, primary): (String, i64) = (column.get("name"), column.get("pk"));
            let default: Option<String> = column.get("dflt_value");
            let required = column.get::<i64, _>("notnull") == 1 || primary > 0;
            table.columns.insert(column_name.clone(), (column.get("type"), required, default));
            if primary > 0 {
                table.primary_key.push(column_name);
            }
        }
        for index in sqlx::query("SELECT * FROM pragma_index_list($1)").bind(&name).fetch_all(&mut on).await.unwrap() {
            let index_name: String = index.get("name");
            let columns: Vec<Option<String>> =
                sqlx::query_scalar("SELECT name FROM pragma_index_info($1) ORDER BY seqno")
                    .bind(&index_name)
                    .fetch_all(&mut on)
                    .await
                    .unwrap();
            let columns: Vec<String> = columns.into_iter().map(|column| column.unwrap_or("?".into())).collect();
            let partial = index.get::<i64, _>("partial") == 1;
            match (index.get::<String, _>("origin").as_str(), index.get::<i64, _>("unique") == 1) {
                ("pk", _) => {}
                (_, true) => {
                    table.unique.insert((columns, partial));
                }
                _ => {
                    table.indexes.insert((index_name, columns, partial));
                }
            }
        }
        let keys = sqlx::query("SELECT * FROM pragma_foreign_key_list($1)").bind(&name);
        for key in keys.fetch_all(&mut on).await.unwrap() {
            table.foreign.insert((key.get("from"), key.get("table"), key.get("on_delete")));
        }
        let triggers = sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = $1");
        table.triggers.extend(triggers.bind(&name).fetch_all(&mut on).await.unwrap());
        tables.insert(name, table);
    }
    tables
}

const COLUMNS: &str = "
    SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
           pg_get_expr(d.adbin, d.adrelid) AS preset, a.attidentity::text AS identity,
           (SELECT collname FROM pg_collation c WHERE c.oid = a.attcollation)::text AS collation
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped";
const INDEXES: &str = "
    SELECT c.relname::text AS name, i.indisunique AS is_unique, i.indisprimary AS is_primary,
           i.indpred IS NOT NULL AS partial,
           ARRAY(SELECT coalesce((SELECT attname FROM pg_attribute
                                  WHERE attrelid = i.indrelid AND attnum = k.n AND k.n > 0), '?')::text
                 FROM unnest(i.indkey) WITH ORDINALITY AS k (n, place) ORDER BY place) AS columns
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::text::regclass";
const CONSTRAINTS: &str = "
    SELECT contype::text AS kind, confrelid::regclass::text AS target, confdeltype::text AS on_delete,
           (SELECT attname FROM pg_attribute WHERE attrelid = conrelid AND attnum = conkey[1])::text AS column
    FROM pg_constraint WHERE conrelid = $1::text::regclass";

async fn of_postgres(address: &str) -> BTreeMap<String, Table> {
    let mut on = PgConnection::connect(address).await.unwrap();
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'sallyport_schema'",
    )
    .fetch_all(&mut on)
    .await
    .unwrap();
    let mut tables = BTreeMap::new();
    for name in names {
        let mut table = Table::default();
        for column in sqlx::query(COLUMNS).bind(&name).fetch_all(&mut on).await.unwrap() {
            let column_name: String = column.get("name");
            let kind = match column.get::<String, _>("type").as_str() {
                "bigint" => "INTEGER",
                "bytea" => "BLOB",
                "text" => {
                    assert_eq!(column.get::<String, _>("collation"), "C", "{name}.{column_name}");
                    "TEXT"
                }
                other => panic!("{name}.{column_name} is {other}"),
            };
            let preset: Option<String> = column.get("preset");
            let preset = preset.map(|preset| preset.replace("::text", "").replace(" COLLATE \"C\"", ""));
            if column_name == "rowid" {
                assert_eq!(column.get::<String, _>("identity"), "d", "{name}");
                continue;
            }
            table.columns.insert(column_name, (kind.to_owned(), column.get("required"), preset));
        }
        for index in sqlx::query(INDEXES).bind(&name).fetch_all(&mut on).await.unwrap() {
            let (columns, partial): (Vec<String>, bool) = (index.get("columns"), index.get("partial"));
            if index.get("is_primary") {
                table.primary_key = columns;
            } else if index.get("is_unique") {
                table.unique.insert((columns, partial));
            } else {
                table.indexes.insert((index.get("name"), columns, partial));
            }
        }
        for constraint in sqlx::query(CONSTRAINTS).bind(&name).fetch_all(&mut on).await.unwrap() {
            match constraint.get::<String, _>("kind").as_str() {
                "c" => table.checks += 1,
                "f" => {
                    let on_delete = match constraint.get::<String, _>("on_delete").as_str() {
                        "c" => "CASCADE",
                        "n" => "SET NULL",
                        _ => "NO ACTION",
                    };
                    let (column, target) = (constraint.get("column"), constraint.get("target"));
                    table.foreign.insert((column, target, on_delete.to_owned()));
                }
                _ => {}
            }
        }
        let triggers = sqlx::query_scalar(
            "SELECT tgname::text FROM pg_trigger WHERE tgrelid = $1::text::regclass AND NOT tgisinternal",
        );
        table.triggers.extend(triggers.bind(&name).fetch_all(&mut on).await.unwrap());
        tables.insert(name, table);
    }
    tables
}

#[tokio::test]
async fn both_have_the_same_tables() {
    let Some(server) = server() else { return };
    let dir = tempfile::tempdir().unwrap();
    Store::open(dir.path()).await.unwrap().close().await;
    let address = server.database().await;
    open(&address).await.close().await;
    let (sqlite, postgres) = (of_sqlite(dir.path()).await, of_postgres(&address).await);
    assert!(sqlite.len() > 15);
    assert_eq!(sqlite.keys().collect::<Vec<_>>(), postgres.keys().collect::<Vec<_>>());
    for (name, table) in &sqlite {
        assert_eq!(table, &postgres[name], "{name}: of SQLite on the left, of PostgreSQL on the right");
    }
}

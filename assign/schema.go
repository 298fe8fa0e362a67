package assign

// Schema is what a ranking query may read.
type Schema struct {
	Tables []Table `json:"tables"` // those that need no schema's name come first
	Cut    bool    `json:"cut"`    // there are more
}

// Table is a table or a view, with the columns that a ranking query may read.
type Table struct {
	Name    string   `json:"name"` // as a query writes it: quoted, and with its schema, if it must be
	View    bool     `json:"view"`
	Columns []Column `json:"columns"`
}

// Column is a column of a table.
type Column struct {
	Name string `json:"name"` // as a query writes it
	Type string `json:"type"`
}

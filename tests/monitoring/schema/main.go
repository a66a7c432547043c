// schema reads dashboards by the types that Grafana publishes for them, panels' options and queries included. What these
// types require and a file lacks is an error, and so is what a file has and they do not know.
//
//	schema DASHBOARD.json...
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	failed := false
	for _, path := range os.Args[1:] {
		for _, complaint := range complaints(path) {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %s\n", path, complaint)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func complaints(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	var raw struct{ Panels []json.RawMessage }
	if err := json.Unmarshal(text, &raw); err != nil {
		return []string{err.Error()}
	}
	found := read("", text, &dashboard.Dashboard{})
	for i, panel := range raw.Panels {
		var kind struct{ Type string }
		_ = json.Unmarshal(panel, &kind)
		var into model = &dashboard.Panel{}
		if kind.Type == "row" {
			into = &dashboard.RowPanel{}
		}
		found = append(found, read(fmt.Sprintf("panels[%d]", i), panel, into)...)
	}
	return found
}

type model interface {
	UnmarshalJSONStrict([]byte) error
	Validate() error
}

// read lists what is wrong with text, and what of it is not in the model once it was read: some types drop what they do
// not know without a word.
func read(at string, text []byte, into model) []string {
	// Without a complaint this is an error without a text.
	if err := into.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return []string{at + " " + err.Error()}
	}
	if err := into.Validate(); err != nil {
		return []string{at + " " + err.Error()}
	}
	var before map[string]any
	if err := json.Unmarshal(text, &before); err != nil {
		return []string{err.Error()}
	}
	if at == "" {
		// Panels are read one by one.
		delete(before, "panels")
	} else {
		// Looked at strictly, and not kept.
		delete(before, "options")
		delete(before, "targets")
	}
	return lost(at, before, into)
}

// lost lists the places of what is before, and not in what was read.
func lost(at string, before, read any) []string {
	written, err := json.Marshal(read)
	if err != nil {
		return []string{err.Error()}
	}
	var after any
	if err := json.Unmarshal(written, &after); err != nil {
		return []string{err.Error()}
	}
	return missing(at, before, after)
}

func missing(at string, before, after any) []string {
	var found []string
	switch before := before.(type) {
	case map[string]any:
		after, _ := after.(map[string]any)
		for key, value := range before {
			if kept, ok := after[key]; ok || !isNothing(value) {
				found = append(found, missing(at+"."+key, value, kept)...)
			}
		}
	case []any:
		after, _ := after.([]any)
		for i, value := range before {
			if i >= len(after) {
				return append(found, fmt.Sprintf("%s[%d]: not known", at, i))
			}
			found = append(found, missing(fmt.Sprintf("%s[%d]", at, i), value, after[i])...)
		}
	default:
		if before != after {
			found = append(found, fmt.Sprintf("%s: %v is read as %v", at, before, after))
		}
	}
	return found
}

// isNothing tells what is left out when it is written.
func isNothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return value == "" || value == false || value == 0.0
}

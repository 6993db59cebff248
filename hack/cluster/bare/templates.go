// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"bytes"
	"embed"
	"text/template"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*"))

func render(name string, values map[string]any) ([]byte, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, values)
	return out.Bytes(), err
}

package main

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"
)

// shrink gives a PNG of the 256 most frequent colours, each pixel the nearest of them: text and lines stay as sharp as they are.
func shrink(file string) ([]byte, error) {
	in, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	img, err := png.Decode(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	each(img, func(_, _ int, c color.RGBA) { count[c]++ })
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(rgb(a), rgb(b)))
	})
	var palette color.Palette
	for _, c := range frequent[:min(len(frequent), 256)] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	for _, c := range frequent {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(img.Bounds(), palette)
	each(img, func(x, y int, c color.RGBA) { small.SetColorIndex(x, y, nearest[c]) })
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

func each(img image.Image, f func(x, y int, c color.RGBA)) {
	for b, y := img.Bounds(), img.Bounds().Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			f(x, y, color.RGBAModel.Convert(img.At(x, y)).(color.RGBA))
		}
	}
}

func rgb(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }

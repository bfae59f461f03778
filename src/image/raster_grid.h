/*
 * The georeferencing of an image: the affine of a NIfTI header, the transformation of a GeoTIFF. To
 * decide whether two files have the same geometry, and to map one to the other.
 *
 *     struct wf_raster_grid image, mask;
 *     wf_raster_grid_of(wf_raster_info(a), &image);
 *     wf_raster_grid_of(wf_raster_info(b), &mask);
 *     if (wf_raster_grid_compares(&image, &mask))
 *         wf_raster_grid_map(&image, &mask, map);
 *
 * A grid points into the raster that it was taken from.
 */
#pragma once

#include "image/raster.h"

struct wf_raster_grid {
    enum { WF_RASTER_GRID_NONE, WF_RASTER_GRID_NIFTI, WF_RASTER_GRID_GEO } kind;
    double at[3][4]; /* world = at * (w, h, d, 1), of the middle of a pixel */
    const struct wf_raster_place *place;
};

/* NIfTI: the sform where there is one, else the qform. GeoTIFF: ModelTransformation, or
 * ModelPixelScale and ModelTiepoint. Without any of them, or if it is singular, the kind is
 * NONE. */
void wf_raster_grid_of(const struct wf_raster_info *info, struct wf_raster_grid *grid);
/* Whether both are known and of one kind. */
bool wf_raster_grid_compares(const struct wf_raster_grid *a, const struct wf_raster_grid *b);
/* GeoTIFF: whether they name the same coordinate system. Also true if one of them names none. */
bool wf_raster_grid_same_system(const struct wf_raster_grid *a, const struct wf_raster_grid *b);
/* (w, h, d) of `from` to (w, h, d) of `to`, both fractions. */
void wf_raster_grid_map(const struct wf_raster_grid *from, const struct wf_raster_grid *to,
                        double map[3][4]);
void wf_raster_grid_move(const double map[3][4], const double from[3], double to[3]);
/* The farthest that the map moves a corner of an image of extents (W, H, D), in pixels. */
double wf_raster_grid_shift(const double map[3][4], const int64_t extent[3]);

/* "RAS, voxels of 1 x 1 x 2.5, origin (-90, -126, -72)", "EPSG:32633, pixels of 0.5 x 0.5, ...". */
void wf_raster_grid_text(const struct wf_raster_grid *grid, char *text, size_t size);
/* "EPSG:32633", or "" if it has no such number. */
void wf_raster_grid_system(const struct wf_raster_grid *grid, char *text, size_t size);
